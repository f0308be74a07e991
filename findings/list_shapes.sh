#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): record_shapes drops the shapes of a list of more than 30 tensors, so that
# an operator of many tensors looks like one of none.
#
# A reader would guess: each tensor of a list has its shape, however long the list is, or the list is cut.
#
# Seen: aten::_foreach_add_ of 30 tensors has 30 entries in "Input Dims", with 31 it has []. Strides are dropped
# too. "Input type" is TensorList in both.
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


def arguments(count):
    tensors = [torch.ones(3) for _ in range(count)]
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        torch._foreach_add_(tensors, 1.5)
    profiler.export_chrome_trace("trace.json")
    events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
    (args,) = (e["args"] for e in events if e.get("name") == "aten::_foreach_add_")
    return len(args["Input Dims"][0]), len(args["Input Strides"][0]), args["Input type"][0]


few, many = arguments(30), arguments(31)
print("shapes, strides and type of 30 tensors:", few, "of 31:", many)
assert few == (30, 30, "TensorList") and many == (0, 0, "TensorList")
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
