"""Digests of the recordings of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from tb_gpudiag.digest.digest import Digest, MemoryPeaks
from tests.digest.made import digest
from tests.jobs.compare.sides import steps_of

MINUTE: Final = 60 * 10**9
START_NS: Final = 1_700_000_000 * 10**9
STEPS: Final = 6
EVERY: Final = 1000
"""Steps from one recording to the next."""


def recording(
    number: int,
    step_us: int = 1000,
    *,
    floors: Sequence[int] = (),
    device: str = "GPU 0",
    capacity: int = 0,
    computing: float = 1.0,
    at_ns: int | None = None,
    **more: Any,
) -> Digest:
    """Make the recording of a number, one each minute."""
    steps = steps_of([step_us + noise for noise in (0, 2, -2, 1, -1, 0)], computing)
    for i, step in enumerate(steps):
        step["name"] = f"ProfilerStep#{number * EVERY + i}"
    rows = [
        {
            "device": device,
            "floor_bytes": floor,
            "time_ns": i * step_us * 1000,
            "warm_up": i == 0,
        }
        for i, floor in enumerate(floors)
    ]
    about = {
        "id": f"{number:032}",
        "span": str(number),
        "path": f"run/worker0.{number}.pt.trace.json",
        "origin_ns": START_NS + number * MINUTE if at_ns is None else at_ns,
        "pid": 1,
        "host": "a",
        "busy_share": computing,
        **more,
    }
    made = digest(steps=steps, memory=rows, **about)
    memory = [MemoryPeaks(device, max(floors) + 100, max(floors) + 200, capacity)] if floors else []
    return replace(made, about=replace(made.about, memory=memory))
