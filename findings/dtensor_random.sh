#!/bin/bash
# torch 2.13.0 (CPU build, gloo, Python 3.11): random operators of sharded DTensors on CPUs draw the same numbers
# on every rank, so dropout drops the same rows of all shards.
#
# A reader would guess: the shards together are what one process would draw, as on GPUs, where DTensor moves the
# offset of each rank's generator.
#
# Seen: after torch.manual_seed(0) on both ranks the two shards of rand_like are equal, and equal to what one
# process draws for a shard alone; dropout(p=0.5) of 64 rows keeps the same elements in rows 0 to 31 and 32 to 63.
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
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def rank(number):
    dist.init_process_group(
        "gloo", rank=number, world_size=2, init_method=f"file://{pathlib.Path('store').absolute()}",
        timeout=datetime.timedelta(seconds=60),
    )
    tensor = distribute_tensor(torch.ones(64, 8), init_device_mesh("cpu", (2,)), [Shard(0)])
    torch.manual_seed(0)
    alone = torch.rand(32, 8)
    torch.manual_seed(0)
    first, second = torch.rand_like(tensor).full_tensor().split(32)
    kept = torch.nn.functional.dropout(tensor, 0.5).full_tensor() > 0
    print(first[0, :3].tolist(), second[0, :3].tolist(), "kept:", int(kept.sum()), "of 512", flush=True)
    assert torch.equal(first, second) and torch.equal(first, alone)
    assert torch.equal(kept[:32], kept[32:]) and 150 < kept.sum() < 350
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
