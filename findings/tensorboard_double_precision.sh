#!/bin/bash
# tensorboard 2.21.0, tensorboard-data-server 0.7.2, event files by torch 2.13.0 (CPU build, Python 3.11):
# `add_scalar(..., double_precision=True)` writes 32 bits; with `new_style=True`, which writes 64, TensorBoard's default
# server does not show it at all.
#
# A reader would guess: the value is kept as a double, and TensorBoard shows it.
#
# Seen, for 16,777,217: with double_precision=True alone the file has 16,777,216. With new_style=True as well the file
# has 16,777,217; --load_fast=false shows it, and --load_fast=true has no such tag. So for counters of tokens, or times
# in seconds since 1970, neither helps. Log them in parts, or in millions.
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
from tensorboard.util import tensor_util
from torch.utils.tensorboard import SummaryWriter

TAGS = {"plain": {}, "double": {"double_precision": True}, "new": {"double_precision": True, "new_style": True}}


def asked(url):
    """Return what a server answers, or None if it does not yet."""
    with contextlib.suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(url) as answer:
        return json.load(answer)


def served(load_fast):
    """Return the values of each tag that TensorBoard shows once it shows the tag "end"."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", "log", "--port", str(port), "--load_fast", load_fast]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    data, end = f"http://127.0.0.1:{port}/data/plugin/", time.monotonic() + 60
    try:
        while "end" not in (asked(data + "scalars/tags") or {}).get("run", {}) and time.monotonic() < end:
            time.sleep(0.5)
        shown = asked(data + "scalars/tags")["run"]
        return {tag: [v for _, _, v in asked(data + f"scalars/scalars?run=run&tag={tag}")] for tag in TAGS if tag in shown}
    finally:
        server.terminate()
        server.wait()


with SummaryWriter("log/run") as writer:
    for tag, how in TAGS.items():
        writer.add_scalar(tag, 16_777_217.0, 0, **how)
    writer.add_scalar("end", 1.0, 0)
events = EventAccumulator("log/run")
events.Reload()
written = {tag: events.Scalars(tag)[0].value for tag in ("plain", "double")}
written["new"] = float(tensor_util.make_ndarray(events.Tensors("new")[0].tensor_proto))
fast, slow = served("true"), served("false")
print("file:", written, "--load_fast=true:", fast, "--load_fast=false:", slow)
assert written == {"plain": 16_777_216.0, "double": 16_777_216.0, "new": 16_777_217.0}
assert fast == {"plain": [16_777_216.0], "double": [16_777_216.0]}
assert slow == {"plain": [16_777_216.0], "double": [16_777_216.0], "new": [16_777_217.0]}
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
