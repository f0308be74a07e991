"""Jobs with a small share of needless work: what a comparison has to see. They have no fault to name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.truth.job import JOBS, Job
from tests.truth.jobs.parts import mlp, rows, trainer

UNITS = 100
"""Training steps in one step of the job: a percent each."""


def more_work(percent: int) -> Callable[[bool], Iterator[None]]:
    def steps(fixed: bool) -> Iterator[None]:
        train = trainer(mlp(depth=2))
        batch = rows(64)
        while True:
            for _ in range(UNITS if fixed else UNITS + percent):
                train(*batch)
            yield

    return steps


for percent in (1, 3, 5, 10):
    name = f"slower_by_{percent}_percent"
    JOBS[name] = Job(name, f"{percent} % more work of the same kind.", more_work(percent), None, timed=12)
