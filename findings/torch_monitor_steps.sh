#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11), tensorboard 2.21.0, tensorboard-data-server 0.7.2:
# TensorboardEventHandler of torch.monitor writes each value at step 0, and TensorBoard's default server then
# shows one point: the last.
#
# A reader would guess: a curve, with steps that count up, or by time.
#
# Seen, for five events: EventAccumulator has five points, all at step 0. --load_fast=true shows one point,
# the fifth value; --load_fast=false shows five.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 tensorboard==2.21.0 tensorboard-data-server==0.7.2
cat >"$work/see.py" <<'END'
import datetime
import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import monitor
from torch.utils.tensorboard import SummaryWriter


def served(load_fast, run, tag, enough):
    """Return (step, value) of the points that TensorBoard shows, once it shows `enough`, or after 20 s."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", "log", "--port", str(port), "--load_fast", load_fast]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/data/plugin/scalars/scalars?run={run}&tag={tag}"
    points, end = [], time.monotonic() + 20
    try:
        while len(points) < enough and time.monotonic() < end:
            time.sleep(0.5)
            with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(url) as answer:
                points = [(step, value) for _, step, value in json.load(answer)]
        return points
    finally:
        server.terminate()
        server.wait()


with SummaryWriter("log/run") as writer:
    handler = monitor.register_event_handler(monitor.TensorboardEventHandler(writer))
    for second in range(5):
        when = datetime.datetime.now() + datetime.timedelta(seconds=second)
        monitor.log_event(monitor.Event("torch.monitor.Stat", when, {"loss": float(second)}))
    monitor.unregister_event_handler(handler)
written = [(event.step, event.value) for event in EventAccumulator("log/run").Reload().Scalars("loss")]
fast, python = served("true", "run", "loss", 5), served("false", "run", "loss", 5)
print("written", written, "fast", fast, "python", python)
assert written == python == [(0, float(second)) for second in range(5)]
assert fast == [(0, 4.0)]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
