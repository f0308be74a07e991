#!/bin/bash
# tensorboard 2.21.0, tensorboard-data-server 0.7.2, event files by torch 2.13.0 (CPU build, Python 3.11):
# what SummaryWriter(purge_step=N) purges depends on the reader, and neither of TensorBoard's servers purges
# what a crashed session wrote after step N to a tag that the next session does not write.
#
# A reader would guess (and torch's documentation says that these events are purged and hidden): the points of
# the first session from step N on are gone, in each tag.
#
# Seen, for tag A at steps 0 to 9, then a writer with purge_step=5 that writes tag B: EventAccumulator, which
# scripts use, has A at 0 to 4. TensorBoard shows A at 0 to 9, with --load_fast=true and with false.
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

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
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
    for step in range(10):
        writer.add_scalar("A", 1, step)
with SummaryWriter("log/run", purge_step=5) as writer:
    for step in range(5, 8):
        writer.add_scalar("B", 1, step)
accumulator = EventAccumulator("log/run").Reload()
script = [event.step for event in accumulator.Scalars("A")]
fast, python = ([step for step, _ in served(load_fast, "run", "A", 10)] for load_fast in ("true", "false"))
print("EventAccumulator", script, "fast", fast, "python", python)
assert script == list(range(5)) and fast == python == list(range(10))
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
