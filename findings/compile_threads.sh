#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): torch.set_num_threads makes every compiled function compile again.
#
# A reader would guess: the number of threads is no guard, as the graph does not change; or compiled kernels keep the
# old number.
#
# Seen: a call after set_num_threads with another number compiles once more; back to the old number nothing compiles.
# Recording with torch.profiler, also with stacks, compiles nothing.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch._dynamo.utils import counters
from torch.profiler import ProfilerActivity, profile

torch.set_num_threads(1)
compiled = torch.compile(lambda x: x + 1, backend="eager")
seen = []


def call():
    compiled(torch.ones(4))
    seen.append(counters["frames"]["ok"])


call()
with profile(activities=[ProfilerActivity.CPU], with_stack=True):
    call()
torch.set_num_threads(2)
call()
torch.set_num_threads(1)
call()
print("compilations after each call:", seen)
assert seen == [1, 1, 2, 2]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
