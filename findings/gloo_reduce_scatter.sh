#!/bin/bash
# torch 2.13.0 (CPU build, gloo, Python 3.11): a reduce-scatter of gloo is an all_reduce of the whole input, in
# traces and in the flight recorder.
#
# A reader would guess: gloo:reduce_scatter, or no range, since gloo has none of its own; the recorder has
# reduce_scatter with the sizes of input and output.
#
# Seen: the operator is c10d::_reduce_scatter_base_, the range on gloo's thread gloo:all_reduce with the dims of
# the input, and the recorder's entry gloo:all_reduce with input and output of the same size. So FSDP2's
# reduce-scatters on a CPU look like all_reduces of DDP, and move about twice the bytes of a reduce-scatter.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import datetime
import json
import pathlib
import pickle

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch._C import _distributed_c10d
from torch.profiler import ProfilerActivity, profile


def rank(number):
    dist.init_process_group(
        "gloo", rank=number, world_size=2, init_method=f"file://{pathlib.Path('store').absolute()}",
        timeout=datetime.timedelta(seconds=60),
    )
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recording:
        dist.reduce_scatter_tensor(torch.zeros(50), torch.ones(100))
    recording.export_chrome_trace(f"{number}.json")
    events = json.loads(pathlib.Path(f"{number}.json").read_text())["traceEvents"]
    seen = {e["name"]: e["args"]["Input Dims"] for e in events if e.get("name", "").startswith(("c10d", "gloo:"))}
    (entry,) = pickle.loads(_distributed_c10d._dump_fr_trace())["entries"]
    recorded = entry["profiling_name"], entry["input_sizes"], entry["output_sizes"]
    if number == 0:
        print(seen, recorded, flush=True)
    assert set(seen) == {"c10d::_reduce_scatter_base_", "gloo:all_reduce"}
    assert seen["gloo:all_reduce"] == [[100]] and recorded[0] == "gloo:all_reduce"
    assert list(map(list, recorded[1])) == list(map(list, recorded[2])) == [[100]]
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
