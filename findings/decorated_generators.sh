#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): `@record_function` on a generator or on a coroutine function records a
# range of some microseconds.
#
# A reader would guess: the range lasts while the generator or the coroutine runs, as torch's other decorator
# with a context, `@torch.no_grad()`, holds inside of a generator.
#
# Seen: loading three batches of 200 ms each from a decorated generator, and awaiting 600 ms in a decorated
# coroutine, have ranges of well under a millisecond: the call that makes the generator. In the same generator
# no_grad holds at each yield.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import asyncio
import json
import pathlib
import time

import torch
from torch.profiler import ProfilerActivity, profile, record_function


@record_function("load")
@torch.no_grad()
def load():
    for _ in range(3):
        time.sleep(0.2)
        yield torch.is_grad_enabled()


@record_function("fetch")
async def fetch():
    await asyncio.sleep(0.6)


with profile(activities=[ProfilerActivity.CPU]) as profiler:
    torch.ones(2)
    start = time.perf_counter()
    gradients = list(load())
    took = time.perf_counter() - start
    asyncio.run(fetch())
profiler.export_chrome_trace("trace.json")
events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
ranges = {e["name"]: e["dur"] / 1000 for e in events if e.get("cat") == "user_annotation"}
print(f"loading took {took * 1000:.0f} ms; ranges in ms:", ranges, "gradients inside:", gradients)
assert took > 0.6 and gradients == [False] * 3
assert set(ranges) == {"load", "fetch"} and max(ranges.values()) < took * 1000 / 4
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
