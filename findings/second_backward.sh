#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): of an operator whose gradient is computed twice, only the first backward
# operator has an arrow from the forward one.
#
# A reader would guess: an arrow to each, as each has the sequence number of its forward operator.
#
# Seen, exp once, backward(retain_graph=True) and backward(): two ExpBackward0 with the sequence number of
# aten::exp, and one arrow (`fwdbwd`), which ends at the first. The second one belongs to no forward operator for
# those who follow arrows.
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

x = torch.randn(4, requires_grad=True)
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    y = x.exp()
    one = torch.ones(4)
    y.backward(one, retain_graph=True)
    y.backward(one)
profiler.export_chrome_trace("trace.json")
events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
operators = [e for e in events if e.get("name") in ("aten::exp", "ExpBackward0")]
numbers = [(e["name"], e["args"]["Sequence number"]) for e in operators]
arrows = [e for e in events if e.get("cat") == "fwdbwd"]
begins, first, second = (e["ts"] for e in operators)
print(numbers, [(e["ph"], e["id"]) for e in arrows])
assert [name for name, _ in numbers] == ["aten::exp", "ExpBackward0", "ExpBackward0"]
assert len({number for _, number in numbers}) == 1
assert [(e["ph"], e["ts"]) for e in arrows] == [("s", begins), ("f", first)]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
