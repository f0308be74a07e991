#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): the second argument of `record_function(name, args)` is nowhere in the
# trace, nor in key_averages.
#
# A reader would guess: it is among the args of the range's event, with record_shapes=True at the latest.
#
# Seen: "batch 17" is not in the exported file, with record_shapes=True either, where the range has
# "Concrete Inputs": [""]. An ExecutionTraceObserver has it.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import pathlib

import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function

observer = ExecutionTraceObserver().register_callback("execution.json")
with profile(
    activities=[ProfilerActivity.CPU], record_shapes=True, execution_trace_observer=observer
) as profiler, record_function("load", "batch 17"):
    torch.ones(2)
rows = [row for row in profiler.events() if row.name == "load"]
profiler.export_chrome_trace("trace.json")
trace, execution = pathlib.Path("trace.json").read_text(), pathlib.Path("execution.json").read_text()
print("in the trace:", "batch 17" in trace, "in the execution trace:", "batch 17" in execution, len(rows))
assert '"load"' in trace and "batch 17" not in trace and "batch 17" not in str(vars(rows[0]))
assert "batch 17" in execution
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
