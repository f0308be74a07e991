#!/bin/bash
# torch 2.13.0 (CPU build, gloo, Python 3.11): DistributedDataParallel broadcasts the buffers of BatchNorm in each
# forward pass of an evaluation under no_grad, and not under inference_mode.
#
# A reader would guess: eval() and no_grad() leave nothing to synchronize, so ranks evaluate on their own, or rank 0
# does alone.
#
# Seen: c10d::broadcast_ in each forward pass, for two groups of buffers (numbers and counters). An evaluation on rank
# 0 alone waits for the others until the timeout, and one with unequal numbers of batches, too. Under inference_mode,
# or with model.module(x), there are none; nor with broadcast_buffers=False.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import datetime
import pathlib

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile


def broadcasts(model, mode):
    """Return how many broadcasts a forward pass makes."""
    with profile(activities=[ProfilerActivity.CPU]) as recording, mode():
        model(torch.ones(2, 16))
    return sum(event.name == "c10d::broadcast_" for event in recording.events())


def rank(number):
    dist.init_process_group(
        "gloo", rank=number, world_size=2, init_method=f"file://{pathlib.Path('store').absolute()}",
        timeout=datetime.timedelta(seconds=60),
    )
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16))
    wrapped = DistributedDataParallel(model).eval()
    apart = DistributedDataParallel(model, broadcast_buffers=False).eval()
    seen = {
        "no_grad": broadcasts(wrapped, torch.no_grad),
        "inference_mode": broadcasts(wrapped, torch.inference_mode),
        "module": broadcasts(wrapped.module, torch.no_grad),
        "broadcast_buffers=False": broadcasts(apart, torch.no_grad),
    }
    if number == 0:
        print("broadcasts of one evaluation:", seen, flush=True)
    assert list(seen.values()) == [2, 0, 0, 0]
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
