#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): torch._dynamo.explain says -1 graph breaks, and no reason, for a function
# that has a break in a loop and is not compiled at all.
#
# A reader would guess: a break in a loop of three is one, or three, and the reason is listed. No breaks is good.
#
# Seen: graph_break_count is the number of graphs less one. A break inside of a `for` makes torch leave the whole
# function to Python: 0 graphs, -1 breaks, no break_reasons. A function that does nothing with tensors has -1, too. A
# check that breaks are 0 or fewer passes for the function that gains nothing. torch._dynamo.utils.counters is no
# better with its graph_break: the reason is under "unimplemented".
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch._dynamo.utils import counters


def loop(x):
    for _ in range(3):
        x = x + 1
        torch._dynamo.graph_break()
    return x


def straight(x):
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


def explained(function):
    torch._dynamo.reset()
    counters.clear()
    told = torch._dynamo.explain(function)(torch.ones(4))
    return told.graph_count, told.graph_break_count, len(told.break_reasons), told.op_count


in_loop = explained(loop)
where = {name: sum(counts.values()) for name, counts in counters.items()}
in_line = explained(straight)
print("graphs, breaks, reasons, operators; loop:", in_loop, "straight:", in_line, "counters of the loop:", where)
assert in_loop == (0, -1, 0, 0) and in_line == (2, 1, 1, 2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
