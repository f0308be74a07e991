#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): with ranges in two asyncio tasks, the self times of key_averages add up to
# more than the time that passed on their one thread, or not, depending on which of the tasks ends first.
#
# A reader would guess: self time counts each moment of a thread once, so the sum is at most what passed.
#
# Seen, two tasks that wait at the same time, one range in each: 100 ms and 200 ms have 300 ms of self time within
# 200 ms. If the one that starts first is the one that takes 200 ms, the two have 200 ms.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import asyncio

import torch
from torch.profiler import ProfilerActivity, profile, record_function


async def wait(name, seconds):
    with record_function(name):
        await asyncio.sleep(seconds)


async def both(first, second):
    await asyncio.gather(wait("first", first), wait("second", second))


def self_ms(first, second):
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        torch.ones(2)
        asyncio.run(both(first, second))
    rows = {row.key: row for row in profiler.key_averages()}
    return [round(rows[name].self_cpu_time_total / 1000) for name in ("first", "second")]


short_first, long_first = self_ms(0.1, 0.2), self_ms(0.2, 0.1)
print("self time (ms), 100 ms first:", short_first, "200 ms first:", long_first)
assert sum(short_first) > 280 and max(short_first) < 280
assert sum(long_first) < 280
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
