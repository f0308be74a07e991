#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): the trace has other text than was given to `add_metadata`, and one
# quotation mark makes the whole file invalid JSON.
#
# A reader would guess: the text is escaped as JSON, and read back as it was.
#
# Seen: the backslashes of C:\runs\new come back as slashes. The two lines "first", "second" come back as
# "firstsecond". a "b" is written as "a /"b/"", because torch escapes the quotation mark with a backslash, and
# Kineto then makes a slash of it: JSONDecodeError.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import json
import pathlib

import torch
from torch.profiler import ProfilerActivity, profile


def written(text):
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        torch.ones(2)
        profiler.add_metadata("key", text)
    profiler.export_chrome_trace("trace.json")
    return pathlib.Path("trace.json").read_text()


path = json.loads(written("C:\\runs\\new"))["key"]
lines = json.loads(written("first\nsecond"))["key"]
print(path, lines)
assert path == "C:/runs/new" and lines == "firstsecond"
quoted = written('a "b"')
print(*(line for line in quoted.splitlines() if '"key"' in line))
try:
    json.loads(quoted)
except json.JSONDecodeError as invalid:
    print(invalid)
else:
    raise SystemExit("valid")
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
