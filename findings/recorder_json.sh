#!/bin/bash
# torch 2.13.0 (CPU build, gloo, Python 3.11): the flight recorder's JSON dump has no Python stacks, and a time of
# 0 where the pickled dump has none; `onlyActive=True` leaves out nothing of a gloo job.
#
# A reader would guess: the JSON and the pickle are two forms of one dump; `onlyActive` leaves out what has
# ended.
#
# Seen, after one all_reduce: the pickled entry has `frames`, with the line that called it, and None for when it
# started and ended. The JSON entry has no such key, and 0 (the year 1970) for both. With onlyActive=True both
# dumps have the entry, with `retired` true.
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
from torch._C import _distributed_c10d

dist.init_process_group(
    "gloo", rank=0, world_size=1, init_method=f"file://{pathlib.Path('store').absolute()}",
    timeout=datetime.timedelta(seconds=60),
)
dist.all_reduce(torch.ones(4))
end = time.monotonic() + 60
while True:
    (pickled,) = pickle.loads(_distributed_c10d._dump_fr_trace())["entries"]
    if pickled["retired"] or time.monotonic() > end:
        break
    time.sleep(0.05)
(text,) = json.loads(_distributed_c10d._dump_fr_trace_json())["entries"]
(active,) = pickle.loads(_distributed_c10d._dump_fr_trace(onlyActive=True))["entries"]
(active_text,) = json.loads(_distributed_c10d._dump_fr_trace_json(onlyActive=True))["entries"]
times = "time_discovered_started_ns", "time_discovered_completed_ns"
print("only in the pickle:", set(pickled) - set(text), [pickled[key] for key in times], [text[key] for key in times])
print("active:", active["retired"], active_text["retired"])
assert set(pickled) - set(text) == {"frames"}
assert any(frame["filename"].endswith("see.py") for frame in pickled["frames"])
assert [pickled[key] for key in times] == [None, None] and [text[key] for key in times] == [0, 0]
assert active["retired"] and active_text["retired"]
dist.destroy_process_group()
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
