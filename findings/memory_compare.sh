#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): `_memory_viz compare` cannot read the snapshots that torch writes, which
# the other commands read.
#
# A reader would guess: it lists what is in one of the two files and not in the other.
#
# Seen, with twice the same file: `stats` reads it, `compare` raises TypeError. It takes the list of the segments
# for the file, as it was in older releases. Given two such lists, its function compares.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import pickle
import subprocess
import sys

import torch.cuda._memory_viz

frames = [{"filename": "model.py", "line": 3, "name": "forward"}]
block = {"address": 0, "size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": frames}
segment = {
    "device": 0, "address": 0, "total_size": 1024, "allocated_size": 1024, "active_size": 1024, "requested_size": 1000,
    "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
    "blocks": [block],
}
snapshot = {"segments": [segment], "device_traces": [[]], "allocator_settings": {}}
with open("snapshot.pickle", "wb") as file:
    pickle.dump(snapshot, file)


def command(*arguments):
    call = [sys.executable, "-m", "torch.cuda._memory_viz", *arguments]
    return subprocess.run(call, capture_output=True, text=True, check=False)


stats, compare = command("stats", "snapshot.pickle"), command("compare", "snapshot.pickle", "snapshot.pickle")
print("stats:", stats.returncode, "compare:", compare.returncode, compare.stderr.splitlines()[-1])
assert stats.returncode == 0 and "TypeError: string indices" in compare.stderr
lines = torch.cuda._memory_viz.compare([segment], [], format_flamegraph=lambda lines: lines)
print(lines)
assert "only_before" in lines and "forward" in lines
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
