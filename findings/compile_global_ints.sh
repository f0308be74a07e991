#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): a global integer that changes compiles a function again for each value,
# until the limit; the same integer as an argument, or in an attribute, does so once.
#
# A reader would guess: after the second value the integer becomes dynamic, wherever it comes from.
#
# Seen, 12 calls with other values: two compilations for an argument and for an attribute of an object, eight for
# a global, after which the function runs without the compiler. That the limit was hit is a log line only.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import logging

import torch
from torch._dynamo.utils import counters
from torch.profiler import ProfilerActivity, profile

logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
STEP = 0
BATCH = torch.ones(4)


class State:
    step = 0


def with_argument(step):
    return BATCH * step


def with_attribute(state):
    return BATCH * state.step


def with_global():
    return BATCH * STEP


def compilations(function, call):
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(function, backend="eager")
    for step in range(2, 14):
        call(compiled, step)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        call(compiled, 13)
    regions = [row.key for row in profiler.key_averages() if row.key.startswith("Torch-Compiled Region")]
    return counters["frames"]["ok"], len(regions)


def call_with_attribute(compiled, step):
    state = State()
    state.step = step
    compiled(state)


def call_with_global(compiled, step):
    global STEP
    STEP = step
    compiled()


argument = compilations(with_argument, lambda compiled, step: compiled(step))
attribute = compilations(with_attribute, call_with_attribute)
of_global = compilations(with_global, call_with_global)
print("compilations, regions in the trace of one more call:", argument, attribute, of_global)
assert argument == attribute == (2, 1) and of_global == (8, 0)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
