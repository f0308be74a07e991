#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): selective checkpointing ignores operators that one takes from the trace, such
# as aten::linear.
#
# A reader would guess: the trace shows aten::linear and aten::scaled_dot_product_attention, so a list of these two to
# create_selective_checkpoint_contexts saves their results.
#
# Seen: both run again in the backward pass as without the list, and nothing warns. The policy is asked for what these
# consist of, below autograd: aten.addmm (aten.mm without a bias) and, on a CPU,
# aten._scaled_dot_product_flash_attention_for_cpu. With these two, no product and no attention runs twice; the trace
# still has aten::linear twice, the second time without a product in it.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import collections
import functools

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

aten = torch.ops.aten
layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(2))


def block(x):
    x = layers[0](x).cos()
    x = torch.nn.functional.scaled_dot_product_attention(x, x, x).cos()
    return layers[1](x).cos()


def step(saved):
    """Return how often operators run, below the name in the trace and as such, in one step."""
    contexts = functools.partial(create_selective_checkpoint_contexts, saved)
    x = torch.ones(2, 4, 8, 16, requires_grad=True)
    ran = collections.Counter()

    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            ran[func] += 1
            return func(*args, **(kwargs or {}))

    with Count():
        checkpoint(block, x, use_reentrant=False, context_fn=contexts).sum().backward()
    with profile(activities=[ProfilerActivity.CPU]) as recording:
        checkpoint(block, x, use_reentrant=False, context_fn=contexts).sum().backward()
    names = collections.Counter(event.name for event in recording.events())
    return names["aten::linear"], ran[aten.addmm.default], ran[BELOW]


BELOW = aten._scaled_dot_product_flash_attention_for_cpu.default
nothing = step([])
names_of_trace = step([aten.linear.default, aten.scaled_dot_product_attention.default])
names_below = step([aten.addmm.default, BELOW])
print("aten::linear, addmm, attention; saved nothing:", nothing, "names of the trace:", names_of_trace, end=" ")
print("names below:", names_below)
assert nothing == names_of_trace == (4, 4, 2) and names_below == (4, 2, 1)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
