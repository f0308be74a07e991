#!/bin/bash
# torch 2.13.0 (CPU build, gloo, Python 3.11): DistributedDataParallel sends its gradients in other pieces in the
# first step than in all later ones, and the second step has an extra broadcast.
#
# A reader would guess: the pieces ("buckets") are laid out when the model is wrapped; each step has the same
# collectives.
#
# Seen, six layers of 512 x 512 (6.3 MB of gradients): the first backward pass has one all_reduce of 1,575,936
# numbers. The second one, and all later ones, have two: 262,656 and 1,313,280. The broadcast, in the second step
# only, is of the new layout. So a recording of the first step tells nothing about overlap.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import datetime
import json
import pathlib

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile


def rank(number):
    dist.init_process_group(
        "gloo", rank=number, world_size=2, init_method=f"file://{pathlib.Path('store').absolute()}",
        timeout=datetime.timedelta(seconds=60),
    )
    model = DistributedDataParallel(torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(6))))
    steps = []
    for _ in range(4):
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recording:
            model(torch.ones(4, 512)).sum().backward()
        recording.export_chrome_trace(f"{number}.json")
        events = json.loads(pathlib.Path(f"{number}.json").read_text())["traceEvents"]
        sizes = [e["args"]["Input Dims"][0][0][0] for e in events if e.get("name") == "c10d::allreduce_"]
        steps.append((sizes, any(e.get("name") == "c10d::broadcast_" for e in events)))
    if number == 0:
        print("all_reduces, and whether there is a broadcast:", steps, flush=True)
    later = [262656, 1313280]
    assert steps == [([1575936], False), (later, True), (later, False), (later, False)]
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
