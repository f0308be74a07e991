"""Measure how fast a large memory snapshot is read, compared with `pickle.load` of the same file in the same
run.

    python -m tests.benchmarks.snapshots [ENTRIES]

Each row is a process of its own. The ratios are what matters: seconds differ between machines and moments.
"""

from __future__ import annotations

import pickle
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.reading import HEADER, Row, line
from tests.benchmarks.traces import Measured, measured
from tests.builder.snapshot import FIRST_ADDRESS, START_US

ENTRIES = 2_000_000

PROGRAMS = {
    "pickle.load alone": """
import pickle
# measured
with open(path, "rb") as file:
    result = len(pickle.load(file)["device_traces"][0])
""",
    "read_trace": """
from tb_gpudiag.trace.read import read_trace
# measured
result = read_trace(path).events_read
""",
    "whole diagnosis": """
from tb_gpudiag import diagnose
# measured
result = diagnose(path).trace.events
""",
}
"""The other rows are compared with the first."""

_FRAMES = 20  # per stack, as without C++ frames
_STACKS = 2_000
_ALIVE = 500
_STEP_BYTES = 2 << 20


def large_snapshot(folder: Path, entries: int) -> Path:
    """Write allocations that live for a while, with stacks that share their frames, as torch writes them."""
    chance = random.Random(0)
    frames = [
        {"filename": f"lib/torch/nn/modules/m{i % 300}.py", "line": i % 1_500, "name": f"function_{i}"}
        for i in range(5_000)
    ]
    stacks = [[chance.choice(frames) for _ in range(_FRAMES)] for _ in range(_STACKS)]
    alive: list[tuple[int, int, Any]] = []
    free = [FIRST_ADDRESS + i * _STEP_BYTES for i in range(2 * _ALIVE)]
    history: list[dict[str, Any]] = []

    def entry(action: str, address: int, size: int, stack: Any) -> None:
        time_us = START_US + 10 * len(history)
        history.append(
            {
                "action": action,
                "addr": address,
                "size": size,
                "stream": 0,
                "time_us": time_us,
                "pool_id": (0, 0),
                "frames": stack,
            }
        )

    while len(history) < entries:
        if len(alive) < _ALIVE or (free and chance.random() < 0.5):
            address, size, stack = free.pop(), chance.choice((512, 4_000, 1 << 20)), chance.choice(stacks)
            alive.append((address, size, stack))
            entry("alloc", address, size, stack)
        else:
            address, size, stack = alive.pop(chance.randrange(len(alive)))
            free.append(address)
            entry("free_requested", address, size, stack)
            entry("free_completed", address, size, stack)
    blocks = [
        {
            "address": address,
            "size": _STEP_BYTES,
            "requested_size": size,
            "state": "active_allocated",
            "frames": stack,
        }
        for address, size, stack in alive
    ]
    segment = {
        "device": 0,
        "address": FIRST_ADDRESS,
        "total_size": 2 * _ALIVE * _STEP_BYTES,
        "blocks": blocks,
    }
    path = folder / "large_snapshot.pickle"
    with path.open("wb") as file:
        pickle.dump({"segments": [segment], "device_traces": [history]}, file)
    return path


def rows(folder: Path, entries: int) -> Iterator[Row]:
    """Measure one row after the other."""
    path = large_snapshot(folder, entries)
    base: Measured | None = None
    for name, program in PROGRAMS.items():
        found = measured(program, path)
        base = base or found
        yield Row(name, found, base.seconds / found.seconds, found.peak_bytes / path.stat().st_size)


def main() -> None:
    entries = int(sys.argv[1]) if len(sys.argv) > 1 else ENTRIES
    with tempfile.TemporaryDirectory() as folder:
        print(HEADER)
        for row in rows(Path(folder), entries):
            print(line(row), flush=True)


if __name__ == "__main__":
    main()
