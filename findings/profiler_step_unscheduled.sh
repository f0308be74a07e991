#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): `step()` of a profiler without a schedule marks nothing.
#
# A reader would guess: each step() ends a ProfilerStep#N, with or without a schedule.
#
# Seen: after three calls of step() there is no ProfilerStep in the trace, and no warning. With a schedule
# that records each step there are four.
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


def marks(**how):
    with profile(activities=[ProfilerActivity.CPU], **how) as profiler:
        for _ in range(3):
            torch.ones(2)
            profiler.step()
    profiler.export_chrome_trace("trace.json")
    events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
    return [e["name"] for e in events if e.get("name", "").startswith("ProfilerStep")]


print(marks(), marks(schedule=schedule(wait=0, warmup=0, active=9)))
assert marks() == []
assert len(marks(schedule=schedule(wait=0, warmup=0, active=9))) == 4
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
