#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): torch's own matcher of slow patterns advises a GPU's TF32 for a recording of
# a CPU, and misses the usual loop over rows.
#
# A reader would guess: it finds `for i: result[i] = rows[i]`, and says nothing about GPUs where there is none.
#
# Seen: no match for 100 assignments by index, one for a loop of rows[i].exp_(). Each float32 product is a match of
# "using GPU that supports TF32". Adam() with its defaults, which are not foreach on CPUs, is one too.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.profiler import ProfilerActivity, _pattern_matcher, profile


def matches(pattern, action):
    how = {"record_shapes": True, "with_stack": True, "profile_memory": True}
    with profile(activities=[ProfilerActivity.CPU], **how) as recorded:
        action()
    matcher = getattr(_pattern_matcher, pattern)(recorded)
    events = matcher.matched_events()
    return len(events), matcher.report(events[0]).split("\n")[0] if events else ""


rows, result = torch.ones(100, 8), torch.empty(100, 8)


def assign():
    for index in range(100):
        result[index] = rows[index]


def in_place():
    for index in range(100):
        rows[index].exp_()


def adam():
    parameter = torch.ones(3, requires_grad=True)
    parameter.grad = torch.ones(3)
    torch.optim.Adam([parameter]).step()


assigned, changed = matches("ForLoopIndexingPattern", assign), matches("ForLoopIndexingPattern", in_place)
product = matches("FP32MatMulPattern", lambda: rows @ rows.t())
optimizer = matches("OptimizerSingleTensorPattern", adam)
print(assigned, changed, product, optimizer, sep="\n")
assert not torch.cuda.is_available()
assert assigned[0] == 0 and changed[0] == 1 and optimizer[0] == 1
assert product[0] == 1 and "GPU" in product[1]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
