#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): acc_events=True keeps the events of all cycles for key_averages, and not
# for export_chrome_trace of the same profiler.
#
# A reader would guess: after the last cycle both tell of the same events: of all cycles, as acc_events asks.
#
# Seen, two cycles of one active step, sin in the first and cos in the second: key_averages has both and two
# steps. The exported trace has cos and the second step.
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

x = torch.ones(2)
with profile(
    activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=1, repeat=2), acc_events=True
) as profiler:
    for operator in (torch.exp, torch.sin, torch.exp, torch.cos):
        operator(x)
        profiler.step()
averages = {row.key: row.count for row in profiler.key_averages()}
profiler.export_chrome_trace("trace.json")
events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
names = {e["name"] for e in events if e.get("ph") == "X"}
print(averages, names)
assert averages == {"ProfilerStep*": 2, "aten::sin": 1, "aten::cos": 1}
assert "aten::cos" in names and "aten::sin" not in names and sum("ProfilerStep#" in name for name in names) == 1
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
