#!/bin/bash
# torch 2.13.0 (CPU build, gloo, Python 3.11): an evaluation changes what the next training step of FSDP2 sends:
# the root's parameters stay whole after a forward pass without a backward one.
#
# A reader would guess: each training step has the same collectives, and each evaluation too; after each,
# parameters are sharded again.
#
# Seen, two sharded layers in a sharded root: training steps have 5 all-gathers, but 4 after an evaluation. The
# first forward pass of an evaluation has 3, all later ones 2.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import pathlib

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.profiler import ProfilerActivity, profile


def rank(number):
    store = f"file://{pathlib.Path('store').absolute()}"
    dist.init_process_group("gloo", rank=number, world_size=2, init_method=store)
    mesh = init_device_mesh("cpu", (2,))
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))
    for module in (model[0], model[1], model):
        fully_shard(module, mesh=mesh)
    x = torch.ones(4, 8)

    def gathers(train):
        with profile(activities=[ProfilerActivity.CPU]) as profiler, torch.set_grad_enabled(train):
            y = model(x)
            if train:
                y.sum().backward()
        return sum(row.count for row in profiler.key_averages() if row.key == "gloo:all_gather")

    counts = [gathers(train) for train in (True, True, False, False, False, True, True)]
    if number == 0:
        print("all-gathers: train", counts[:2], "evaluate", counts[2:5], "train", counts[5:])
        assert counts == [5, 5, 3, 2, 2, 4, 5]
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
