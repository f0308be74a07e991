#!/bin/bash
# torch 2.13.0 (CPU build, gloo, Python 3.11): no_sync() of DistributedDataParallel is about the forward pass; around
# backward() alone it changes nothing.
#
# A reader would guess: gradients are reduced in the backward pass, so backward() is what has to be inside.
#
# Seen: with only backward() inside, its all_reduce is there; with only the forward pass inside, there is none. With
# both, none. So accumulation of gradients that calls the model before `with model.no_sync()` sends them every time,
# which costs time and gives the same numbers.
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


def reduced(run):
    """Return how many all_reduces `run` makes."""
    with profile(activities=[ProfilerActivity.CPU]) as recording:
        run()
    return sum(event.name == "c10d::allreduce_" for event in recording.events())


def rank(number):
    dist.init_process_group(
        "gloo", rank=number, world_size=2, init_method=f"file://{pathlib.Path('store').absolute()}",
        timeout=datetime.timedelta(seconds=60),
    )
    model, x = DistributedDataParallel(torch.nn.Linear(16, 16)), torch.ones(2, 16)

    def both():
        with model.no_sync():
            model(x).sum().backward()

    def backward_only():
        loss = model(x).sum()
        with model.no_sync():
            loss.backward()

    def forward_only():
        with model.no_sync():
            loss = model(x).sum()
        loss.backward()

    seen = {run.__name__: reduced(run) for run in (both, backward_only, forward_only)}
    if number == 0:
        print("all_reduces with no_sync around:", seen, flush=True)
    assert seen == {"both": 0, "backward_only": 1, "forward_only": 0}
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
