#!/bin/bash
# torch 2.13.0 (CPU build, gloo, Python 3.11): on CPUs a DTensor that changes its sharded dimension is gathered
# whole on every rank, though gloo can exchange the parts.
#
# A reader would guess: Shard(0) to Shard(1) is one all-to-all, and a rank needs memory for two shards. Or gloo has
# none, and it raises.
#
# Seen: one gloo:all_gather, which has an output of the whole tensor, and no all_to_all. torch logs that CPU groups
# have no all-to-all; all_to_all_single in the same group is a gloo:all_to_all.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import datetime
import logging
import pathlib

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.profiler import ProfilerActivity, profile

ELEMENTS = 1 << 20


def recorded(action):
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True) as profiler:
        result = action()
    rows = profiler.key_averages()
    allocated = sum(max(0, event.self_cpu_memory_usage) for event in profiler.events() if event.name == "aten::empty")
    return result, [row.key for row in rows if row.key.startswith("gloo:")], allocated


def rank(number):
    logging.disable(logging.WARNING)
    dist.init_process_group(
        "gloo", rank=number, world_size=2, init_method=f"file://{pathlib.Path('store').absolute()}",
        timeout=datetime.timedelta(seconds=60),
    )
    mesh = init_device_mesh("cpu", (2,))
    tensor = distribute_tensor(torch.ones(1024, ELEMENTS // 1024), mesh, [Shard(0)])
    changed, collectives, allocated = recorded(lambda: tensor.redistribute(mesh, [Shard(1)]))
    _, exchanged, _ = recorded(lambda: dist.all_to_all_single(torch.ones(4), torch.ones(4)))
    print(collectives, allocated, "bytes allocated;", exchanged, flush=True)
    assert changed.placements == (Shard(1),) and changed.to_local().numel() == ELEMENTS // 2
    assert collectives == ["gloo:all_gather"] and allocated >= 4 * ELEMENTS
    assert exchanged == ["gloo:all_to_all"]
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
