"""The one run for a GPU that is lent for minutes: what to do in which order, and what came of it.

Results are written as they come: each job's files go into one of a few tar files, so that a run that is cut
off has lost the job that ran. A job that fails or hangs costs its own results only.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Final

from tests.truth.gpu import child, everything  # noqa: F401
from tests.truth.gpu.failing import FAILING
from tests.truth.gpu.machine import write_machine
from tests.truth.gpu.packing import Parts
from tests.truth.job import JOBS

TOGETHER: Final = 4
"""Variants that are started, or write their traces, while one is measured."""

TIME_LIMIT_S: Final = 100
"""Of a variant that hangs."""

SUMMARY: Final = "summary.json"

# Recorded without the profiler's stacks first: the promise is about these.
VARIANTS: Final = {
    False: {"before_first/plain": False, "before_first/stacks": True, "before_second/plain": False},
    True: {"after_first/plain": False, "after_first/stacks": True},
}


def in_order(timed_before: Sequence[str]) -> list[str]:
    """All that there is to do: pairs whose fix was timed before, other pairs, failures for want of memory,
    and healthy jobs. Pairs that promise time come first."""
    faulty = [name for name, job in JOBS.items() if job.gpu and not job.healthy]
    known = [name for name in timed_before if name in faulty]
    healthy = [name for name, job in JOBS.items() if job.gpu and job.healthy]
    return [*known, *(name for name in faulty if name not in known), *FAILING, *healthy]


@dataclass
class Run:
    """One run of many jobs. out: gets the results. work: a folder of its own for what is made on the way.
    until_s: of time.monotonic; no job runs longer."""

    out: Path
    work: Path
    until_s: float
    context: ForkServerContext
    said: dict[str, str] = field(default_factory=dict)

    def all_of(self, names: Sequence[str]) -> Iterator[str]:
        """Run the jobs. Yields a line as each is done, and at last what was not done."""
        self.out.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(parents=True, exist_ok=True)
        parts = Parts(self.out)
        write_machine(self.out)
        with ThreadPoolExecutor(TOGETHER) as pool:
            running = {pool.submit(self._one, name, parts): name for name in names}
            for done in as_completed(running):
                name = running[done]
                self.said[name] = done.result()
                (self.out / SUMMARY).write_text(json.dumps(self.said, indent=1))
                yield f"{name}: {self.said[name]}"
        left = [name for name in names if self.said[name].startswith(("failed", "no time left"))]
        yield f"{len(names) - len(left)} of {len(names)} done"
        yield f"not done: {', '.join(left) or 'nothing'}"

    def _one(self, name: str, parts: Parts) -> str:
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            line = self._failure(name, folder) if name in FAILING else self._pair(name, folder)
        except Exception as error:  # one job that does not run must not cost the others' results
            line = f"failed: {error}"
        return line + parts.add(folder)

    def _pair(self, name: str, folder: Path) -> str:
        """Time and record a job, and the same after its fix."""
        halves: dict[str, list[float]] = {}
        for fixed, kinds in VARIANTS.items():
            if fixed and JOBS[name].healthy:  # the same code
                halves["after"] = halves["before"]
                continue
            variant = "after" if fixed else "before"
            if late := self._process(folder, variant, child.main, (name, fixed, folder, kinds)):
                return late
            times = json.loads((folder / f"times_{variant}.json").read_text())
            halves[variant] = [statistics.median(times[::2]), statistics.median(times[1::2])]
        (folder / "times.json").write_text(json.dumps(halves))
        before, after = (1e3 * min(each) for each in halves.values())
        return f"{before:.2f} -> {after:.2f} ms"

    def _failure(self, name: str, folder: Path) -> str:
        """Run a job until it is out of memory, and dump what the allocator did."""
        if late := self._process(folder, "failing", child.main_of_failure, (name, folder)):
            return late
        return (folder / "output_failing.txt").read_text().strip()[-200:]

    def _process(
        self, folder: Path, what: str, target: Callable[..., None], arguments: tuple[object, ...]
    ) -> str:
        """Run a process to its end. Returns why it did not end well, or an empty text."""
        limit_s = min(TIME_LIMIT_S, self.until_s - time.monotonic())
        if limit_s <= 0:
            return "no time left"
        process = self.context.Process(target=target, args=(*arguments, self.work / "lock"))
        process.start()
        process.join(limit_s)
        if process.exitcode == 0:
            return ""
        process.kill()
        process.join()
        if time.monotonic() >= self.until_s:
            return f"no time left for {what}"
        output = folder / f"output_{what}.txt"
        said = output.read_text().split("\n") if output.exists() else []
        return f"failed: {what} {process.exitcode} {' '.join(said[-4:])[-300:]}"


def forkserver() -> ForkServerContext:
    """A process that has imported torch, and forks those of the jobs."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.truth.gpu.child"])
    return context
