"""Run the variants of a job by turns, each in a process of its own (or one per rank)."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.truth.job import Job

TIME_LIMIT_S = 240


@dataclass(frozen=True)
class Times:
    """Median step of each run in seconds, of the slowest rank."""

    before: list[float]
    after: list[float]

    @property
    def gain(self) -> float:
        """Share of the step that the fix gives back."""
        return 1 - statistics.mean(self.after) / statistics.mean(self.before)

    @property
    def doubt(self) -> float:
        """How far the gain differs between runs of the same code."""
        gains = [1 - after / before for before in self.before for after in self.after]
        return max(gains) - min(gains)


VARIANTS = (
    ("before", "first", ("plain", "stacks")),
    ("after", "first", ("plain", "stacks")),
    ("before", "second", ("plain",)),
    ("after", "second", ()),
)
"""By turns, so that a change of the machine's speed meets both. The second recording is of equal code."""


def record_job(job: Job, out: Path) -> Times:
    """Write `VARIANT_TURN/KIND/` with the recordings below `out`. Return the times without the profiler."""
    found: dict[str, list[float]] = {"before": [], "after": []}
    for variant, turn, kinds in VARIANTS:
        folder = out / f"{variant}_{turn}"
        _run(job, variant, folder, kinds)
        found[variant].append(max(_median(path) for path in folder.glob("times_*.json")))
    return Times(found["before"], found["after"])


def _median(path: Path) -> float:
    found: float = statistics.median(json.loads(path.read_text()))
    return found


def _run(job: Job, variant: str, folder: Path, kinds: tuple[str, ...]) -> None:
    """Run one variant to its end. Raises RuntimeError with its last output if it fails."""
    command = [sys.executable, "-m", "tests.truth.child", job.name, variant, str(folder), *kinds]
    common = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    ranks = [
        subprocess.Popen(
            command,
            env=common | {"RANK": str(rank), "WORLD_SIZE": str(job.world), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(job.world)
    ]
    try:
        outputs = [rank.communicate(timeout=TIME_LIMIT_S)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, output in zip(ranks, outputs, strict=True):
        if rank.returncode:
            raise RuntimeError(f"{job.name} {variant} ended with {rank.returncode}: {output[-2000:]}")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
