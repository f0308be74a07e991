#!/bin/bash
# torch 2.13.0 (CPU build), pyinstrument 5.1.3 (Python 3.11): a torch profile with stacks ends the sampling of
# pyinstrument around it, for good; one without stacks does not.
#
# A reader would guess: pyinstrument is a statistical profiler: a timer takes its samples, whatever else records,
# and at least it goes on when the other one is done.
#
# Seen, three phases of 0.3 s: with_stack=True around the second one leaves samples of the first phase alone.
# Without stacks there are samples of all three.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 pyinstrument==5.1.3
cat >"$work/see.py" <<'END'
import time

import pyinstrument
import torch
from torch.profiler import ProfilerActivity, profile


def work():
    end = time.perf_counter() + 0.3
    while time.perf_counter() < end:
        sum(range(1000))


def before():
    work()


def inside():
    work()


def after():
    work()


def phases(**how):
    sampler = pyinstrument.Profiler()
    sampler.start()
    before()
    with profile(activities=[ProfilerActivity.CPU], **how):
        torch.ones(2)
        inside()
    after()
    stacks = [stack for stack, _ in sampler.stop().frame_records]
    functions = {frame.split("\0")[0] for stack in stacks for frame in stack}
    return functions & {"before", "inside", "after"}


with_stack, without = phases(with_stack=True), phases()
print("sampled phases; with_stack:", with_stack, "without:", without)
assert with_stack == {"before"} and without == {"before", "inside", "after"}
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
