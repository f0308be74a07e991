#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): the execution trace of a profile with a schedule is one file for all cycles,
# while each cycle's Kineto trace is another file.
#
# A reader would guess: the file has the last cycle, or the first, as it belongs to one Kineto trace.
#
# Seen, repeat=2 with two active steps each: its nodes have ProfilerStep#2, #3, #6 and #7, with nothing that tells
# where the pause was; ids go on. Each Kineto trace has two of the steps. "Record function id" is the rf_id of the
# nodes in both.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import json
import pathlib

import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule


def ids(attributes):
    return {attribute["name"]: attribute["value"] for attribute in attributes}


files = []


def export(profiler):
    files.append(f"{len(files)}.json")
    profiler.export_chrome_trace(files[-1])


observer = ExecutionTraceObserver().register_callback("execution.json")
with profile(
    activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
    execution_trace_observer=observer, on_trace_ready=export,
) as profiler:
    for size in range(10):
        torch.ones(size).exp_()
        profiler.step()
nodes = json.loads(pathlib.Path("execution.json").read_text())["nodes"]
steps = {node["name"]: ids(node["attrs"])["rf_id"] for node in nodes if node["name"].startswith("ProfilerStep#")}
cycles = []
for file in files:
    events = json.loads(pathlib.Path(file).read_text())["traceEvents"]
    marks = [e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep#")]
    cycles.append({mark["name"]: mark["args"]["Record function id"] for mark in marks})
print("execution trace:", steps, "Kineto traces:", cycles)
assert sorted(steps) == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#6", "ProfilerStep#7"]
assert [sorted(cycle) for cycle in cycles] == [sorted(steps)[:2], sorted(steps)[2:]]
assert cycles[0] | cycles[1] == steps
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
