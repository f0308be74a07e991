#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): in a segment of activation checkpointing, hooks before the forward pass run
# twice, and the hooks after it run once, for the segment and for its last module.
#
# A reader would guess: the segment runs twice, so each of its hooks does. A timer that opens a span in one hook and
# closes it in the other works.
#
# Seen, for Linear, ReLU, Linear with use_reentrant=False: recomputation ends as soon as it has the last tensor that
# the backward pass needs, with an exception inside of torch. That is before the last Linear multiplies: its hook
# before ran, its hook after and that of the whole segment do not. A stack of spans grows by two for each segment.
# The trace has the last aten::addmm twice all the same; FlopCounterMode counts it once. With use_reentrant=True, or
# under set_checkpoint_early_stop(False), both kinds of hooks run twice.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode

segment = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
x = torch.randn(4, 8, requires_grad=True)
hooks = []
for name, module in [("first", segment[0]), ("last", segment[2]), ("segment", segment)]:
    module.register_forward_pre_hook(lambda *_, name=name: hooks.append(f"before {name}"))
    module.register_forward_hook(lambda *_, name=name: hooks.append(f"after {name}"))


def step(**how):
    """Run forward and backward; return how often each hook ran."""
    hooks.clear()
    checkpoint(segment, x, **how).sum().backward()
    return {name: hooks.count(name) for name in sorted(set(hooks))}


early = step(use_reentrant=False)
with profile(activities=[ProfilerActivity.CPU]) as recording:
    step(use_reentrant=False)
products = sum(row.count for row in recording.key_averages() if row.key == "aten::addmm")
with FlopCounterMode(display=False) as counter:
    step(use_reentrant=False)
counted = counter.flop_counts["Global"][torch.ops.aten.addmm] // (2 * 4 * 8 * 8)
with set_checkpoint_early_stop(False):
    whole = step(use_reentrant=False)
reentrant = step(use_reentrant=True)
print("hooks:", early, "aten::addmm recorded and counted:", products, counted)
print("without early stop:", whole, "reentrant:", reentrant, sep="\n")
once = {"after last", "after segment"}
assert early == {name: 1 if name in once else 2 for name in whole}
assert set(whole.values()) == set(reentrant.values()) == {2} and (products, counted) == (4, 3)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
