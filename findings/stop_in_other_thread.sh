#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): a profile that another thread stops is empty, and nothing raises.
#
# A reader would guess: start() and stop() are of the process, so that a timer or a server's thread may end a
# recording. Or it raises.
#
# Seen: stopped by another thread, the profile has no events; by the thread that started it, it has the operator.
# Likewise, if another thread calls step(), the recording of a schedule has no operators.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import threading

import torch
from torch.profiler import ProfilerActivity, profile, schedule


def here(function):
    function()


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def stopped(by):
    profiler = profile(activities=[ProfilerActivity.CPU])
    profiler.start()
    torch.sin(torch.ones(2))
    by(profiler.stop)
    return [event.name for event in profiler.events()].count("aten::sin")


def stepped(by):
    recorded = []

    def ready(profiler):
        recorded.append([event.name for event in profiler.events()].count("aten::sin"))

    once = schedule(wait=0, warmup=1, active=1, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=once, on_trace_ready=ready) as profiler:
        for _ in range(2):
            torch.sin(torch.ones(2))
            by(profiler.step)
    return recorded


stops, steps = (stopped(here), stopped(in_thread)), (stepped(here), stepped(in_thread))
print("operators; stop() here, in a thread:", stops, "step() here, in a thread:", steps)
assert stops == (1, 0) and steps == ([1], [0])
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
