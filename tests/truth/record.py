"""Run the variants of a job by turns, each in a process of its own (or one per rank)."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import shutil
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, product
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

from tests.truth import child
from tests.truth.job import Job
from tests.truth.times import Times

TIME_LIMIT_S = 240


VARIANTS = ("before", "after")

TURNS = (("first", ("plain", "stacks")), ("second", ("plain",)))
"""Runs of both variants. The second recordings are of equal code."""


def record_job(job: Job, out: Path) -> None:
    """Write `VARIANT_TURN/KIND/` with the recordings below `out`, and the times without the profiler.

    Both variants run at the same time and by turns: one is stopped, with its workers, while the other runs a
    few steps. So a change of the machine's speed meets both.
    """
    shutil.rmtree(out, ignore_errors=True)  # what an interrupted run left would count as more recordings
    for turn, kinds in TURNS:
        running = [_start(job, variant, out / f"{variant}_{turn}", kinds) for variant in VARIANTS]
        try:
            for _ in range(child.STRETCHES + 2):
                for variant in running:
                    _let_run(variant)
        finally:
            for rank in chain(*running):
                with suppress(ProcessLookupError):
                    os.killpg(rank.pid, signal.SIGKILL)


def read_times(out: Path) -> Times:
    """Read the times of a job's runs below `out`."""
    found: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for (turn, _), variant in product(TURNS, VARIANTS):
        of_ranks = [json.loads(path.read_text()) for path in (out / f"{variant}_{turn}").glob("times_*.json")]
        found[variant] += map(max, zip(*of_ranks, strict=True))
    return Times(found["before"], found["after"])


@dataclass(frozen=True)
class Rank:
    """A running rank of a job, and how it is told that it is its turn."""

    pid: int
    turns: Connection
    output: Path


def _start(job: Job, variant: str, folder: Path, kinds: tuple[str, ...]) -> list[Rank]:
    folder.mkdir(parents=True, exist_ok=True)
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(job.world)}
    return [
        _start_rank(
            (job.name, variant == "after", folder, kinds),
            common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            folder / f"output_{rank}.txt",
        )
        for rank in range(job.world)
    ]


def _start_rank(what: tuple[object, ...], environment: dict[str, str], output: Path) -> Rank:
    ours, theirs = multiprocessing.Pipe()
    process = _ready_to_fork().Process(target=child.main, args=(*what, environment, theirs))
    process.start()
    theirs.close()
    return Rank(process.pid or 0, ours, output)


def _let_run(ranks: list[Rank]) -> None:
    """Let a variant run its turn, and stop it. Raises RuntimeError with its last output if it fails."""
    for rank in ranks:
        with suppress(ProcessLookupError):
            os.killpg(rank.pid, signal.SIGCONT)
        rank.turns.send(None)
    deadline = time.monotonic() + TIME_LIMIT_S
    for rank in ranks:
        try:
            if not rank.turns.poll(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            rank.turns.recv()
        except (EOFError, TimeoutError, ConnectionResetError) as error:
            said = rank.output.read_text() if rank.output.exists() else ""
            raise RuntimeError(f"{rank.output.parent} failed: {said[-2000:]}") from error
    for rank in ranks:
        with suppress(ProcessLookupError):
            os.killpg(rank.pid, signal.SIGSTOP)


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
