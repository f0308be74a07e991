#!/bin/bash
# torch 2.13.0 (CPU build, gloo, Python 3.11): the profiler records a blocking all_reduce that waits half a
# second for a slower rank as an operator of well under a millisecond.
#
# A reader would guess: c10d::allreduce_ lasts as long as the call of dist.all_reduce, or a wait follows it on
# the calling thread.
#
# Seen: c10d::allreduce_ takes 0.07 ms on the calling thread, which then has no event for 500 ms. The time is
# in gloo:all_reduce, a `user_annotation` on another thread, and so outside of what the calling thread's
# operators sum up to.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import datetime
import json
import pathlib
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.profiler import ProfilerActivity, profile


def rank(number):
    dist.init_process_group(
        "gloo", rank=number, world_size=2, init_method=f"file://{pathlib.Path('store').absolute()}",
        timeout=datetime.timedelta(seconds=60),
    )
    dist.barrier()
    with profile(activities=[ProfilerActivity.CPU]) as recording:
        if number == 1:
            time.sleep(0.5)
        dist.all_reduce(torch.ones(4))
    if number == 0:
        recording.export_chrome_trace("trace.json")
        events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
        (operator,) = (e for e in events if e.get("name") == "c10d::allreduce_")
        (range_,) = (e for e in events if e.get("name") == "gloo:all_reduce")
        for event in (operator, range_):
            print(event["name"], event["cat"], "thread", event["tid"], round(event["dur"] / 1000, 2), "ms", flush=True)
        assert operator["dur"] < range_["dur"] / 10
        assert operator["tid"] == threading.get_native_id() != range_["tid"]
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
