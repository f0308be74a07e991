#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): a function decorated with `record_function` has one range object for all
# of its calls, so that a call that begins ends the range of the call that runs.
#
# A reader would guess: each call has its range, as with `with record_function(...)` in the function: nested for
# a function that calls itself, side by side for two threads.
#
# Seen: a function that sleeps 0.1 s, calls itself, and sleeps 0.3 s has ranges of 0.1 and 0.4 s, one after the
# other; the outer call took 0.8 s. Two threads that run the function for 1 s each, the second 0.5 s later: both
# ranges are 0.5 s. key_averages has a total of 0.5 s for the first, and 1 s for the second.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import json
import pathlib
import threading
import time

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function


def recorded(work):
    """Return (start, duration) in seconds of the ranges while `work` runs, and their sum in key_averages."""
    everything = _ExperimentalConfig(profile_all_threads=True)
    with profile(activities=[ProfilerActivity.CPU], experimental_config=everything) as profiler:
        torch.ones(2)
        work()
    (row,) = (row for row in profiler.key_averages() if row.key == "work")
    profiler.export_chrome_trace("trace.json")
    events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
    ranges = sorted((e["ts"] / 1e6, e["dur"] / 1e6) for e in events if e.get("name") == "work")
    return [(start - ranges[0][0], dur) for start, dur in ranges], row.cpu_time_total / 1e6


@record_function("work")
def work(deeper):
    time.sleep(0.1)
    if deeper:
        work(deeper - 1)
    time.sleep(0.3)


@record_function("work")
def wait():
    time.sleep(1)


def overlapping():
    first, second = threading.Thread(target=wait), threading.Thread(target=wait)
    first.start()
    time.sleep(0.5)
    second.start()
    first.join()
    second.join()


ranges, total = recorded(lambda: work(1))
print("recursive:", [f"{start:.2f} s + {dur:.2f} s" for start, dur in ranges], f"total {total:.2f} s")
(_, outer), (begins, inner) = ranges
assert abs(begins - outer) < 0.05 and outer < inner < 0.7 and total < 0.75
ranges, total = recorded(overlapping)
print("two threads:", [f"{start:.2f} s + {dur:.2f} s" for start, dur in ranges], f"total {total:.2f} s")
(_, first), (begins, second) = ranges
assert abs(begins - first) < 0.05 and first < 0.9 and second < 0.9 and total < 1.6
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
