#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): mapping a file is an allocation of the whole file in the trace's memory
# events, with a "Total Allocated" of 0, whatever else is allocated.
#
# A reader would guess: torch.load(mmap=True) allocates nothing, so there is no event; or the event's total is that
# of the one before plus its bytes.
#
# Seen, while a tensor of 5 MB is kept: torch.load(mmap=True) of 4 MB is a [memory] event with the file's size and a
# total of 0; share_memory_() is one of 4 MB and 0; torch.empty is one of 4 MB and 9 MB.
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

KEPT, BYTES = 5_000_000, 4_000_000


def last_large(work):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = torch.empty(KEPT // 4), work()
        del kept
    profiler.export_chrome_trace("trace.json")
    events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
    args = [e["args"] for e in events if e.get("name") == "[memory]" and e["args"]["Bytes"] >= BYTES]
    assert (args[0]["Bytes"], args[0]["Total Allocated"]) == (KEPT, KEPT) and len(args) == 2
    return args[1]["Bytes"], args[1]["Total Allocated"]


tensor = torch.ones(BYTES // 4)
torch.save(tensor, "tensor.pt")
size = pathlib.Path("tensor.pt").stat().st_size
mapped = last_large(lambda: torch.load("tensor.pt", mmap=True))
shared = last_large(tensor.share_memory_)
plain = last_large(lambda: torch.empty(BYTES // 4))
print("file:", size, "bytes and total; mapped:", mapped, "shared:", shared, "plain:", plain)
assert mapped == (size, 0) and shared == (BYTES, 0) and plain == (BYTES, KEPT + BYTES)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
