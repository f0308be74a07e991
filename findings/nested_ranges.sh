#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): key_averages drops a range inside a range of the same name if it is
# alone in it, and counts the time twice if there are two.
#
# A reader would guess: one rule for both, whatever it is: the calls are counted, and the total is the outer
# time or the sum of all.
#
# Seen: one `block` of 50 ms inside a `block`: count 1, total 50 ms. Two of 50 ms inside it: count 3, total
# 200 ms, twice what passed. The trace has 2 and 3 events.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import json
import pathlib
import time

import torch
from torch.profiler import ProfilerActivity, profile, record_function


def block(inside):
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        torch.ones(2)
        with record_function("block"):
            for _ in range(inside):
                with record_function("block"):
                    time.sleep(0.05)
    (row,) = (row for row in profiler.key_averages() if row.key == "block")
    profiler.export_chrome_trace("trace.json")
    events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
    took = [e["dur"] for e in events if e.get("name") == "block"]
    return row.count, len(took), round(row.cpu_time_total / max(took))


one, two = block(1), block(2)
print("calls by key_averages, events in the trace, total / outer duration:", one, two)
assert one == (1, 2, 1) and two == (3, 3, 2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
