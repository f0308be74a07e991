#!/bin/bash
# torch 2.13.0 (CPU build, Linux, Python 3.11): DataLoader workers that are forked while a profile with stacks runs
# keep its hook: each Python call in them is recorded for as long as they live, in memory that nobody reads.
#
# A reader would guess: the profiler watches its own process. The workers are not in the file, so they run as they
# do without a profile.
#
# Seen: sys.getprofile() is set in the worker during a profile with_stack=True, and a million calls of a Python
# function take some 20 MiB of the worker's memory. Without stacks there is no hook, and they take none.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import resource
import sys

import torch
from torch.profiler import ProfilerActivity, profile

CALLS = 1_000_000


def nothing():
    pass


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, _):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(CALLS):
            nothing()
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        return sys.getprofile() is not None, grown_kib // 1024


def worker(**how):
    with profile(activities=[ProfilerActivity.CPU], **how):
        (answer,) = torch.utils.data.DataLoader(Data(), batch_size=None, num_workers=1)
    return answer


with_stack, without = worker(with_stack=True), worker()
print("hook in the worker, MiB grown; with_stack:", with_stack, "without:", without)
assert with_stack[0] and with_stack[1] >= 10 and not without[0] and without[1] < 2
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
