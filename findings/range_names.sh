#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): in the trace, ranges and Python functions with a letter outside of ASCII
# are all called "unknown", and a quotation mark in the name of a range makes the whole file invalid JSON.
#
# A reader would guess: names are escaped as JSON, and come back as they were.
#
# Seen: the ranges "Größe", "数据" and "a<tab>b" are three events "unknown", so that sums by name mix them; a
# function `zähle` and a module's class `Schicht_ä` are "unknown", too, with their file and line. key_averages has
# all names. C:\runs comes back with a slash, "two<line end>lines" as "twolines". A name with quotation marks:
# JSONDecodeError.
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

pathlib.Path("counting.py").write_text("def zähle():\n    return sum(range(9))\n")
from counting import zähle  # noqa: E402

NAMES = ["Größe", "数据", "a\tb", "C:\\runs", "two\nlines"]


class Schicht_ä(torch.nn.Module):
    def forward(self, x):
        return x + 1


def written(names, **how):
    """Return the text of a trace with ranges of these names, and what key_averages calls them."""
    with profile(activities=[ProfilerActivity.CPU], **how) as profiler:
        torch.ones(2)
        for name in names:
            with record_function(name):
                zähle()
        Schicht_ä()(torch.ones(2))
    rows = {row.key for row in profiler.key_averages()}
    profiler.export_chrome_trace("trace.json")
    return pathlib.Path("trace.json").read_text(), rows


text, rows = written(NAMES, with_stack=True)
events = json.loads(text)["traceEvents"]
ranges = [e["name"] for e in events if e.get("cat") == "user_annotation"]
functions = [e["name"] for e in events if e.get("cat") == "python_function"]
print(ranges, functions.count("unknown"), "functions are unknown")
assert ranges == ["unknown", "unknown", "unknown", "C:/runs", "twolines"] and rows.issuperset(NAMES)
assert functions.count("unknown") == len(NAMES) + 1 and not any("counting.py" in name for name in functions)
try:
    json.loads(written(['a "b"'])[0])
except json.JSONDecodeError as invalid:
    print(invalid)
else:
    raise SystemExit("valid")
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
