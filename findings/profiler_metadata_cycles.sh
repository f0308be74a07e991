#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): `add_metadata` reaches the file only if it is called in the warm-up
# or active steps of that file's own cycle. Otherwise it does nothing, without an error. The log has one
# warning, the first time.
#
# A reader would guess: what is added to a profiler is in each file that it writes from then on.
#
# Seen, with a key added in each of the steps wait, warm-up, active, wait, warm-up, active: the first file has
# the keys of steps 1 and 2, the second those of steps 4 and 5. Those added while it waits (0 and 3) are in
# neither.
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

files = []


def save(profiler):
    files.append(pathlib.Path(f"{len(files)}.json"))
    profiler.export_chrome_trace(str(files[-1]))


cycles = schedule(wait=1, warmup=1, active=1, repeat=2)
with profile(activities=[ProfilerActivity.CPU], schedule=cycles, on_trace_ready=save) as profiler:
    for step in range(6):
        profiler.add_metadata(f"added in step {step}", "yes")
        torch.ones(2)
        profiler.step()
keys = [sorted(key for key in json.loads(file.read_text()) if key.startswith("added")) for file in files]
print(keys)
assert keys == [["added in step 1", "added in step 2"], ["added in step 4", "added in step 5"]]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
