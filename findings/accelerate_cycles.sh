#!/bin/bash
# accelerate 1.15.0 with torch 2.13.0 (CPU build, Python 3.11): `Accelerator.profile` with `output_trace_dir`
# and a schedule that repeats keeps the last cycle only; with a handler that exports each cycle it raises at
# the end.
#
# A reader would guess: a file for each cycle, as with torch's own tensorboard_trace_handler; a handler of
# one's own and output_trace_dir go together.
#
# Seen: three cycles, one file profile_0.json with ProfilerStep#8. With on_trace_ready=export_chrome_trace as
# well: three files of the handler, then RuntimeError: Trace is already saved, since torch exports a recording
# only once.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 accelerate==1.15.0
cat >"$work/see.py" <<'END'
import json
import pathlib

import torch
from accelerate import Accelerator
from accelerate.utils import ProfileKwargs


def record(folder, **how):
    cycles = {"wait": 1, "warmup": 1, "active": 1, "repeat": 3}
    kwargs = ProfileKwargs(activities=["cpu"], schedule_option=cycles, output_trace_dir=folder, **how)
    with Accelerator(cpu=True, kwargs_handlers=[kwargs]).profile() as profiler:
        for _ in range(12):
            torch.ones(2)
            profiler.step()


record("plain")
(file,) = pathlib.Path("plain").iterdir()
steps = [e["name"] for e in json.loads(file.read_text())["traceEvents"] if "ProfilerStep" in e.get("name", "")]
print(file.name, steps)
assert file.name == "profile_0.json" and steps == ["ProfilerStep#8"]
try:
    record("both", on_trace_ready=lambda profiler: profiler.export_chrome_trace(f"own{profiler.step_num}.json"))
except RuntimeError as raised:
    print(raised)
    assert "already saved" in str(raised) and len(list(pathlib.Path().glob("own*.json"))) == 3
else:
    raise SystemExit("no error")
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
