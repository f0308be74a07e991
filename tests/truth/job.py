"""What a real job is, and what a right diagnosis of it says."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Steps = Callable[..., Iterator[None]]
"""A loop that yields after each step. Called with `fixed`; loops of ranks also with `rank` and `world`."""


@dataclass(frozen=True)
class Expected:
    """What a right diagnosis of the faulty job says, written from the mechanism before any was seen."""

    limiters: frozenset[str]
    rules: frozenset[str]  # one of them is the first finding
    functions: frozenset[str] = frozenset()  # one of them is the place, where stacks were recorded
    rank: int | None = None  # of a job of ranks: the one that is named


@dataclass(frozen=True)
class Job:
    """A real job: a loop, and what is wrong with it. Nothing is wrong with a healthy one."""

    name: str
    mechanism: str  # the first line of its docstring
    steps: Steps
    expected: Expected | None  # None: healthy, so no finding above INFO
    world: int = 1
    timed: int = 30  # steps that are timed
    recorded: int = 6
    later: int = 0  # steps by which the last rank records later than the others
    allowed: frozenset[str] = frozenset()  # findings that are no false alarm although the job is healthy
    file: Path = field(default=Path())
    gpu: bool = False  # needs one: recorded by on_gpu.py
    environment: Mapping[str, str] = field(default_factory=dict)  # of the faulty run only
    snapshot: bool = False  # of its memory, too

    @property
    def healthy(self) -> bool:
        return self.expected is None

    def start(self, fixed: bool, rank: int) -> Iterator[None]:
        """Return the running loop of a rank."""
        arguments: dict[str, Any] = {"fixed": fixed}
        if self.world > 1:
            arguments |= {"rank": rank, "world": self.world}
        return self.steps(**arguments)


JOBS: dict[str, Job] = {}


def job(
    *,
    limiters: str = "",
    rules: str = "",
    functions: str = "",
    rank: int | None = None,
    allowed: str = "",
    **settings: Any,
) -> Callable[[Steps], Steps]:
    """Register a loop as a job. Texts are words with spaces between; a job without `limiters` is healthy."""
    expected = (
        Expected(frozenset(limiters.split()), frozenset(rules.split()), frozenset(functions.split()), rank)
        if limiters
        else None
    )

    def register(steps: Steps) -> Steps:
        name = steps.__name__
        mechanism = (inspect.getdoc(steps) or "").split("\n")[0]
        file = Path(inspect.getsourcefile(steps) or "")
        JOBS[name] = Job(
            name, mechanism, steps, expected, file=file, allowed=frozenset(allowed.split()), **settings
        )
        return steps

    return register


gpu_job = functools.partial(job, gpu=True)
