#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): with stacks, one generator has several names in the trace: the line is that
# of its definition in its first event, and that of the `yield` from which it goes on in all others.
#
# A reader would guess: "file.py(LINE): name" has the line of the definition, as for functions, so that the time
# of a generator is that of one name.
#
# Seen, a generator with two yields, read to its end: its three events have the line of `def`, one line more, and
# three lines more. A coroutine has the line of the `await` that suspended it.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import asyncio
import json
import pathlib

import torch
from torch.profiler import ProfilerActivity, profile


def batches():
    yield 1
    # Get the next batch.
    yield 2


async def wait():
    await asyncio.sleep(0.01)


with profile(activities=[ProfilerActivity.CPU], with_stack=True) as profiler:
    torch.ones(2)
    list(batches())
    asyncio.run(wait())
profiler.export_chrome_trace("trace.json")
events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]


def lines(function):
    """Return the lines in the names of its events, counted from its definition."""
    names = [e["name"] for e in events if e.get("cat") == "python_function"]
    of_it = [name for name in names if name.endswith(f": {function.__name__}")]
    return [int(name.split("(")[1].split(")")[0]) - function.__code__.co_firstlineno for name in of_it]


print("generator:", lines(batches), "coroutine:", lines(wait))
assert lines(batches) == [0, 1, 3] and lines(wait) == [0, 1]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
