#!/bin/bash
# torch 2.13.0 (CPU build, gloo, Python 3.11): the flight recorder never says that a gloo collective has
# ended, and does not record send and recv.
#
# A reader would guess: an ended collective has the state "completed" and a time of completion; a send is an
# entry with is_p2p; a dump without operations has an empty list of entries.
#
# Seen: after all_reduce, send or recv, and barrier have ended on both ranks, there are two entries,
# all_reduce and barrier, each with state "scheduled" and without times. Only `retired` turns true a moment
# later, and `last_completed_collective` of pg_status counts to 3, since the send takes a number without an
# entry. `last_started_collective` stays -1. Before the first operation the JSON dump has no key "entries",
# while the pickled dump has an empty list.
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
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch._C import _distributed_c10d


def rank(number):
    dist.init_process_group(
        "gloo", rank=number, world_size=2, init_method=f"file://{pathlib.Path('store').absolute()}",
        timeout=datetime.timedelta(seconds=60),
    )
    before = json.loads(_distributed_c10d._dump_fr_trace_json())
    pickled = pickle.loads(_distributed_c10d._dump_fr_trace())
    dist.all_reduce(torch.ones(4))
    dist.send(torch.ones(3), 1) if number == 0 else dist.recv(torch.ones(3), 0)
    dist.barrier()
    end = time.monotonic() + 60
    while True:
        after = json.loads(_distributed_c10d._dump_fr_trace_json())
        if all(e["retired"] for e in after["entries"]) or time.monotonic() > end:
            break
        time.sleep(0.1)
    dist.barrier()
    dist.destroy_process_group()
    entries = [
        (e["profiling_name"], e["state"], e["retired"], e["time_discovered_completed_ns"]) for e in after["entries"]
    ]
    (status,) = after["pg_status"].values()
    print(entries, status, sorted(before), flush=True)
    assert entries == [("gloo:all_reduce", "scheduled", True, 0), ("gloo:barrier", "scheduled", True, 0)]
    assert status["last_completed_collective"] == "3" and status["last_started_collective"] == "-1"
    assert "entries" not in before and pickled["entries"] == []


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
