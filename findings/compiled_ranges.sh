#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): a range of `record_function` inside of a compiled function is not in
# the trace.
#
# A reader would guess: it is recorded around the operators that it had around it, or breaks the graph.
#
# Seen: torch.compile(backend="eager") leaves it out (a warning in the log of the compilation says so) and
# compiles the whole function. The range outside stays.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.profiler import ProfilerActivity, profile, record_function


@torch.compile(backend="eager", fullgraph=True)
def forward(x):
    with record_function("inside"):
        return x.sin() + 1


x = torch.ones(3)
forward(x)
with profile(activities=[ProfilerActivity.CPU]) as profiler, record_function("outside"):
    forward(x)
names = {row.key for row in profiler.key_averages()}
print(sorted(names))
assert "outside" in names and "aten::sin" in names and "inside" not in names
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
