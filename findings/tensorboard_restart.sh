#!/bin/bash
# tensorboard 2.21.0, tensorboard-data-server 0.7.2, event files by torch 2.13.0 (CPU build, Python 3.11): of
# a run that was started again in the same folder with steps from 0, TensorBoard's default server shows the
# second session alone, however short; its Python server shows both.
#
# A reader would guess: --load_fast changes the speed, not the points: both sessions in both, or the first one
# cut where the second begins in both.
#
# Seen, for steps 0 to 9 and then 0 to 3: --load_fast=true has 4 points, 0 to 3 of the second session, and
# none of the steps 4 to 9. --load_fast=false has all 14.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 tensorboard==2.21.0 tensorboard-data-server==0.7.2
cat >"$work/see.py" <<'END'
import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

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


for session, steps in ((1, 10), (2, 4)):
    with SummaryWriter("log/run") as writer:
        for step in range(steps):
            writer.add_scalar("loss", session, step)
fast, python = served("true", "run", "loss", 14), served("false", "run", "loss", 14)
print("fast", fast)
print("python", python)
assert fast == [(step, 2.0) for step in range(4)]
assert python == [(step, 1.0) for step in range(10)] + [(step, 2.0) for step in range(4)]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
