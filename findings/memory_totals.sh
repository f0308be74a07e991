#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): "Total Allocated" of CPU memory in a trace keeps counting tensors that
# were freed between two recordings, and never has those that were made outside.
#
# A reader would guess: it is what the process has allocated at that moment, or what was allocated since this
# recording began.
#
# Seen: a tensor of 2,000 bytes is made in one recording and freed after it. In the next recording one of 2,800
# bytes is made: Total Allocated is 4,800, and stays so high for good. A tensor of 4 MB that lives all the time is
# in neither. So the totals of a job that records cycle after cycle climb, though its memory does not.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import json
import pathlib

import torch
from torch.profiler import ProfilerActivity, profile


def record(numbers):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        tensor = torch.ones(numbers)
    profiler.export_chrome_trace("trace.json")
    events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
    (change,) = (e["args"] for e in events if e.get("name") == "[memory]")
    return tensor, (change["Bytes"], change["Total Allocated"])


always = torch.ones(1000, 1000)
first, seen = record(500)
del first
second, seen_later = record(700)
del second
_, seen_last = record(1)
print("bytes, total:", seen, seen_later, seen_last)
assert seen == (2000, 2000) and seen_later == (2800, 4800) and seen_last == (4, 4804)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
