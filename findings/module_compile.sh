#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): module.compile() of a module of torch.nn compiles nothing, and says so
# nowhere; torch.compile(module) compiles it.
#
# A reader would guess: both are the same, but for the object that one keeps.
#
# Seen: TransformerEncoderLayer(...).compile(), Linear and Sequential: no frame in Dynamo's counters, no compiled
# region in the trace. torch.compile of the same module: one frame. A subclass with nothing of its own but a
# forward that calls the parent's: one frame. Sequential(...).compile() of two own modules: two, one for each.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch._dynamo.utils import counters
from torch.profiler import ProfilerActivity, profile


class Own(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x)


def compiled(module, in_place):
    torch._dynamo.reset()
    counters.clear()
    if in_place:
        module.compile(backend="eager")
    else:
        module = torch.compile(module, backend="eager")
    batch = torch.ones(2, 3, 8)
    module(batch)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        module(batch)
    regions = sum(row.count for row in profiler.key_averages() if row.key.startswith("Torch-Compiled Region"))
    return counters["frames"]["ok"], regions


def linear():
    return torch.nn.Linear(8, 8)


def encoder():
    return torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


for make in (linear, encoder, lambda: torch.nn.Sequential(linear(), torch.nn.ReLU())):
    in_place, wrapped = compiled(make(), True), compiled(make(), False)
    print(type(make()).__name__, "frames and regions:", in_place, wrapped)
    assert in_place == (0, 0) and wrapped == (1, 1)
assert compiled(Own(8, 8), True) == (1, 1)
assert compiled(torch.nn.Sequential(Own(8, 8), Own(8, 8)), True)[1] == 2
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
