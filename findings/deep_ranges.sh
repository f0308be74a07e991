#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): key_averages raises RecursionError for ranges of alternating names that are
# nested more than some thousand deep, which the same profiler records and exports.
#
# A reader would guess: Python's recursion limit has no say in it, as the ranges were not opened by recursion. Or
# it has, whatever the names are.
#
# Seen, 2,000 ranges in each other: the trace has 2,000 events in each case. If their names are "a" and "b" in
# turn, key_averages raises RecursionError; if all are "a", it does not.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import contextlib
import itertools
import json
import pathlib

import torch
from torch.profiler import ProfilerActivity, profile, record_function


def recorded(names):
    with profile(activities=[ProfilerActivity.CPU]) as profiler, contextlib.ExitStack() as ranges:
        for name in itertools.islice(itertools.cycle(names), 2000):
            ranges.enter_context(record_function(name))
        torch.ones(2)
    profiler.export_chrome_trace("trace.json")
    events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
    try:
        profiler.key_averages()
    except RecursionError as raised:
        error = type(raised).__name__
    else:
        error = None
    return sum(e.get("name") in names for e in events), error


two_names, one_name = recorded(["a", "b"]), recorded(["a"])
print("events, error; two names:", two_names, "one name:", one_name)
assert two_names == (2000, "RecursionError") and one_name == (2000, None)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
