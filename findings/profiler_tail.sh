#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): a schedule without `repeat` writes one more file than there are
# cycles, which has one step in which nothing ran.
#
# A reader would guess: four steps, two active ones a cycle, make two files.
#
# Seen: three calls of on_trace_ready. The third recording has ProfilerStep#4, which the last step() began,
# and no operator. It is the newest file of the folder.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import json
import pathlib

import torch
from torch.profiler import ProfilerActivity, profile, schedule

recordings = []


def save(profiler):
    profiler.export_chrome_trace("trace.json")
    events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
    steps = [e["name"] for e in events if e.get("cat") == "user_annotation"]
    recordings.append((steps, sum(e.get("cat") == "cpu_op" for e in events)))


cycles = schedule(wait=0, warmup=0, active=2)
with profile(activities=[ProfilerActivity.CPU], schedule=cycles, on_trace_ready=save) as profiler:
    for _ in range(4):
        torch.ones(2)
        profiler.step()
print("steps, operators:", recordings)
assert [steps for steps, _ in recordings] == [
    ["ProfilerStep#0", "ProfilerStep#1"], ["ProfilerStep#2", "ProfilerStep#3"], ["ProfilerStep#4"]
]
assert [operators > 0 for _, operators in recordings] == [True, True, False]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
