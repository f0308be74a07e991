"""Run the variants of a job by turns, each in a process of its own (or one per rank)."""

from __future__ import annotations

import functools
import json
import multiprocessing
import shutil
import socket
import statistics
import time
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path

from tests.truth import child
from tests.truth.job import Job

TIME_LIMIT_S = 240


@dataclass(frozen=True)
class Times:
    """Mean step of each run in seconds, of the slowest rank: a fix gives back time of all steps, and some
    faults are in every third one, or in one of thirty."""

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
    ("after", "second", ("plain",)),
)
"""By turns, so that a change of the machine's speed meets both. The second recordings are of equal code."""


def record_job(job: Job, out: Path) -> None:
    """Write `VARIANT_TURN/KIND/` with the recordings below `out`, and the times without the profiler."""
    shutil.rmtree(out, ignore_errors=True)  # what an interrupted run left would count as more recordings
    for variant, turn, kinds in VARIANTS:
        _run(job, variant, out / f"{variant}_{turn}", kinds)


def read_times(out: Path) -> Times:
    """Read the times of a job's runs below `out`."""
    found: dict[str, list[float]] = {"before": [], "after": []}
    for variant, turn, _ in VARIANTS:
        of_ranks = [json.loads(path.read_text()) for path in (out / f"{variant}_{turn}").glob("times_*.json")]
        found[variant].append(max(map(statistics.mean, of_ranks)))
    return Times(found["before"], found["after"])


def _run(job: Job, variant: str, folder: Path, kinds: tuple[str, ...]) -> None:
    """Run one variant to its end. Raises RuntimeError with its last output if it fails."""
    folder.mkdir(parents=True, exist_ok=True)
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(job.world)}
    ranks = [
        _ready_to_fork().Process(
            target=child.main,
            args=(job.name, variant == "after", folder, kinds),
            kwargs={"environment": common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}},
        )
        for rank in range(job.world)
    ]
    for rank in ranks:
        rank.start()
    try:
        deadline = time.monotonic() + TIME_LIMIT_S
        for rank in ranks:
            rank.join(max(0, deadline - time.monotonic()))
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
    for number, rank in enumerate(ranks):
        if rank.exitcode:
            output = (folder / f"output_{number}.txt").read_text()
            raise RuntimeError(f"{job.name} {variant} ended with {rank.exitcode}: {output[-2000:]}")


@functools.cache
def _ready_to_fork() -> ForkServerContext:
    """A process that has imported torch and forks those of the jobs: an import takes as long as many jobs."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.truth.child"])
    return context


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
