#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): with `with_stack=True` the profiler records the Python frames, but no
# operators and no ranges, of a thread that ran when it started, and nothing at all of a thread that starts
# later.
#
# A reader would guess: a process has one profiler, which records both kinds of events of both threads, or
# (who knows that it is thread-local) neither.
#
# Seen: the function `work` is a frame of the main thread and of the older thread. aten::exp and the range,
# which each of the three threads runs inside `work`, are in the trace once, for the main thread.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import json
import pathlib
import threading

import torch
from torch.profiler import ProfilerActivity, profile, record_function


def work(name):
    with record_function(f"range of {name}"):
        torch.ones(3).exp()


def older():
    started.set()
    go.wait()
    work("older")


started, go = threading.Event(), threading.Event()
first = threading.Thread(target=older)
first.start()
started.wait()
with profile(activities=[ProfilerActivity.CPU], with_stack=True) as recording:
    second = threading.Thread(target=work, args=("newer",))
    second.start()
    second.join()
    go.set()
    first.join()
    work("main")
recording.export_chrome_trace("trace.json")
events = json.loads(pathlib.Path("trace.json").read_text())["traceEvents"]
names = {first.native_id: "older", second.native_id: "newer", threading.get_native_id(): "main"}
frames = sorted(names[e["tid"]] for e in events if e.get("cat") == "python_function" and e["name"].endswith(": work"))
operators = [names[e["tid"]] for e in events if e.get("name") == "aten::exp"]
ranges = [e["name"] for e in events if e.get("cat") == "user_annotation"]
print("frames of", frames, "operators of", operators, ranges)
assert frames == ["main", "older"] and operators == ["main"] and ranges == ["range of main"]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
