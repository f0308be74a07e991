#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): a profile inside of a profile works, and makes the outer one empty.
#
# A reader would guess: the inner one raises, as there can be one at a time; or the outer one has what ran
# outside of the inner one.
#
# Seen: nothing raises. The inner profile has its operator. The outer one has no events at all, neither from
# before nor from after the inner one; torch logs a warning of C++ as the outer one ends.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.profiler import ProfilerActivity, profile

x = torch.ones(2)
with profile(activities=[ProfilerActivity.CPU]) as outer:
    torch.sin(x)
    with profile(activities=[ProfilerActivity.CPU]) as inner:
        torch.cos(x)
    torch.tan(x)
of_inner, of_outer = [row.key for row in inner.key_averages()], [row.key for row in outer.key_averages()]
print("inner:", of_inner, "outer:", of_outer)
assert of_inner == ["aten::cos"] and of_outer == []
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
