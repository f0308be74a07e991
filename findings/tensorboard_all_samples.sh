#!/bin/bash
# tensorboard 2.21.0, tensorboard-data-server 0.7.2, event files by torch 2.13.0 (CPU build, Python 3.11):
# `--samples_per_plugin scalars=0` shows no point at all.
#
# A reader would guess: all points, as with 0 in EventAccumulator's size_guidance, and as the help of older releases said
# (tensorboard #5550).
#
# Seen, 2,000 steps: the tag is there without a point, an empty card, with --load_fast=true and with --load_fast=false.
# `scalars=2000000`, any large number, shows all 2,000. Without the option there are 1,000 of them, at random: the last
# one always, the first one or a peak of one step by chance.
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


def asked(url):
    """Return what a server answers, or None if it does not yet."""
    with contextlib.suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(url) as answer:
        return json.load(answer)


def served(load_fast, *options):
    """Return the steps of the tag "loss" that TensorBoard shows once it shows the last step of the tag "end"."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", "log", "--port", str(port), "--load_fast", load_fast]
    server = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    data, end = f"http://127.0.0.1:{port}/data/plugin/", time.monotonic() + 60
    try:
        while "end" not in (asked(data + "scalars/tags") or {}).get("run", {}) and time.monotonic() < end:
            time.sleep(0.5)
        return [step for _, step, _ in asked(data + "scalars/scalars?run=run&tag=loss")]
    finally:
        server.terminate()
        server.wait()


with SummaryWriter("log/run") as writer:
    for step in range(2000):
        writer.add_scalar("loss", 1.0, step)
    writer.add_scalar("end", 1.0, 0)
everything = list(range(2000))
default = [served(fast) for fast in ("true", "false")]
zero = [served(fast, "--samples_per_plugin", "scalars=0") for fast in ("true", "false")]
large = [served(fast, "--samples_per_plugin", "scalars=2000000") for fast in ("true", "false")]
events = EventAccumulator("log/run", size_guidance={"scalars": 0})
events.Reload()
for name, steps in (("default", default), ("scalars=0", zero), ("scalars=2000000", large)):
    print(name, [(len(found), found[:1], found[-1:]) for found in steps])
assert zero == [[], []] and large == [everything, everything]
assert all(len(found) == 1000 and found[-1] == 1999 for found in default)
assert len(events.Scalars("loss")) == 2000
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
