#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): under torch.func.vmap the trace has operators that never ran with such
# shapes, next to those that ran; `with_flops=True` counts both.
#
# A reader would guess: what vmap makes of the operators is what is recorded: one batched product.
#
# Seen: vmap of mm over five pairs of 8 x 8: an aten::mm of 8 x 8 (1,024 FLOPs), whose pair of matrices nobody
# has, and inside of it the aten::bmm of 5 x 8 x 8 that ran (5,120). key_averages sums to 6,144, FlopCounterMode
# to 5,120.
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
from torch.utils.flop_counter import FlopCounterMode

batch = torch.ones(5, 8, 8)
with profile(activities=[ProfilerActivity.CPU], with_flops=True, record_shapes=True) as profiler:
    torch.func.vmap(torch.mm)(batch, batch)
with FlopCounterMode(display=False) as counter:
    torch.func.vmap(torch.mm)(batch, batch)
flops = {row.key: row.flops for row in profiler.key_averages() if row.flops}
profiler.export_chrome_trace("trace.json")
events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
shapes = {e["name"]: e["args"]["Input Dims"][0] for e in events if e.get("name") in ("aten::mm", "aten::bmm")}
print(shapes, flops, "FlopCounterMode", counter.get_total_flops())
assert shapes == {"aten::mm": [8, 8], "aten::bmm": [5, 8, 8]}
assert flops == {"aten::mm": 1024, "aten::bmm": 5120} and counter.get_total_flops() == 5120
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
