#!/bin/bash
# torch 2.13.0 (CPU build, fake process group, Python 3.11): one matrix product of DTensors is two operators of
# one name, one in the other, with global and with local shapes; `with_flops=True` counts both.
#
# A reader would guess: one aten::mm, with this rank's shapes, or with those of the whole; FLOPs are what this rank
# computes.
#
# Seen, (8 x 16) @ (16 x 16) in rows over four ranks: aten::mm with Input Dims [8, 16], and inside of it aten::mm
# with [2, 16]. key_averages has count 2 and 5,120 FLOPs; the rank computes 1,024, all ranks 4,096.
# FlopCounterMode has 4,096 on each rank.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import json
import pathlib

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh
from torch.profiler import ProfilerActivity, profile
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.flop_counter import FlopCounterMode

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
mesh = init_device_mesh("cpu", (4,))
rows = DTensor.from_local(torch.ones(2, 16), mesh, [Shard(0)])
weight = DTensor.from_local(torch.ones(16, 16), mesh, [Replicate()])
rows @ weight
with profile(activities=[ProfilerActivity.CPU], with_flops=True, record_shapes=True) as profiler:
    torch.mm(rows, weight)
with FlopCounterMode(display=False) as counter:
    torch.mm(rows, weight)
(row,) = (row for row in profiler.key_averages() if row.key == "aten::mm")
profiler.export_chrome_trace("trace.json")
events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
outer, inner = sorted((e for e in events if e.get("name") == "aten::mm"), key=lambda event: event["ts"])
shapes = [event["args"]["Input Dims"][0] for event in (outer, inner)]
print(shapes, "count", row.count, "FLOPs", row.flops, "FlopCounterMode", counter.get_total_flops())
assert shapes == [[8, 16], [2, 16]] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
assert (row.count, row.flops, counter.get_total_flops()) == (2, 4096 + 1024, 4096)
dist.destroy_process_group()
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
