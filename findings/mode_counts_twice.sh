#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): while FlopCounterMode is on, the profiler records each operator twice, one
# in the other.
#
# A reader would guess: a mode only looks on; it costs time and adds no operators.
#
# Seen: of one matrix product, key_averages has count 2 and 2,048 FLOPs inside FlopCounterMode, and count 1 and
# 1,024 without. The mode's own event is called PythonDispatchMode.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import contextlib

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode


def products(mode):
    x = torch.ones(8, 8)
    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as profiler, mode:
        torch.mm(x, x)
    rows = {row.key: row for row in profiler.key_averages()}
    return rows["aten::mm"].count, rows["aten::mm"].flops, "PythonDispatchMode" in rows


with_mode, without = products(FlopCounterMode(display=False)), products(contextlib.nullcontext())
print("with FlopCounterMode:", with_mode, "without:", without)
assert with_mode == (2, 2048, True) and without == (1, 1024, False)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
