#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): toggle_collection_dynamic switches operators off and on, and leaves the
# Python functions on.
#
# A reader would guess: [ProfilerActivity.CPU] is all that is recorded of the CPU, so nothing of it is in the file
# while it is off.
#
# Seen, with stacks: of sin (on), cos inside of a range (off) and tan (on), the trace has the operators aten::sin
# and aten::tan, not the range, and the Python calls of all three.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import json
import pathlib

import torch
from torch.profiler import ProfilerActivity, profile, record_function

x = torch.ones(2)
with profile(activities=[ProfilerActivity.CPU], with_stack=True) as profiler:
    torch.sin(x)
    profiler.toggle_collection_dynamic(False, [ProfilerActivity.CPU])
    with record_function("off"):
        torch.cos(x)
    profiler.toggle_collection_dynamic(True, [ProfilerActivity.CPU])
    torch.tan(x)
profiler.export_chrome_trace("trace.json")
events = [e for e in json.loads(pathlib.Path("trace.json").read_text())["traceEvents"] if e.get("ph") == "X"]
functions = [e["name"] for e in events if e["cat"] == "python_function"]
python = [name for name in ("sin", "cos", "tan") if any(f"built-in method {name} of" in f for f in functions)]
others = [e["name"] for e in events if e["cat"] in ("cpu_op", "user_annotation")]
print("operators and ranges:", others, "Python:", python)
assert others == ["aten::sin", "aten::tan"] and python == ["sin", "cos", "tan"]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
