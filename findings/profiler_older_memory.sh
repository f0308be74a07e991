#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): with `profile_memory=True`, freeing CPU memory that was allocated
# before the profiler started is not recorded. The log has a warning, not the trace.
#
# A reader would guess: each free inside the recording is an event with negative bytes, so that the events sum
# up to how memory changed.
#
# Seen: of a tensor of 4,000,000 bytes, made before and freed inside, there is no event. The events are +2000,
# +2800, -2000, and say that memory grew by 2,800 bytes while it fell by almost 4 MB.
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

older = torch.ones(1000, 1000)
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
    first = torch.ones(500)
    del older
    second = torch.ones(700)
    del first
profiler.export_chrome_trace("trace.json")
events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
changes = [e["args"]["Bytes"] for e in events if e.get("name") == "[memory]"]
print(changes)
assert changes == [2000, 2800, -2000]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
