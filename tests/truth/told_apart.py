"""How well a comparison tells recordings apart: `python -m tests.truth.told_apart FOLDER [--write]`.

FOLDER is what `make truth` has recorded, or a part of it. Equal code must never be told apart, from one
recording a side or from two; ten percent more work should be, from two recordings a side that were made by
turns. The same is tried with simulated recordings, whose noise is known. `--write` puts the tables into
seen_jobs/told_apart.md.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np
import torch

from tb_gpudiag.digest.build_digest import digest_file
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.trace.files.find import find_traces
from tests.jobs.compare.sides import trace
from tests.truth.job import JOBS, Job
from tests.truth.jobs import everything  # noqa: F401
from tests.truth.jobs.small_changes import TEN_PERCENT
from tests.truth.seen import put

Recording = list[Digest]
"""The digests of all ranks."""

TOLD: Final = (pb.Comparison.FASTER, pb.Comparison.SLOWER)

SIMULATED: Final = 200
"""Comparisons of each kind of noise."""

STEPS: Final = 10

# By how much the recordings of one side scatter, and the steps of a recording, as shares.
SCATTER: Final = ((0.003, 0.01), (0.01, 0.01), (0.01, 0.1), (0.02, 0.05), (0.05, 0.1), (0.2, 0.3))

BURST: Final = 3.0
BURSTS: Final = 0.1
"""One step in ten takes three times as long, as beside another process."""


@dataclass
class Told:
    """Comparisons by what was said. wrong: the names of those that were told the wrong way round, or told
    apart though they are equal."""

    right: int = 0
    untold: int = 0
    wrong: list[str] = field(default_factory=list)

    def count(self, name: str, verdict: int, expected: int | None) -> None:
        """expected: FASTER or SLOWER; None for equal code, for which nothing is right but not to tell."""
        if verdict not in TOLD:
            self.untold += 1
        elif verdict == expected:
            self.right += 1
        else:
            self.wrong.append(name)

    @property
    def of(self) -> int:
        return self.right + self.untold + len(self.wrong)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    found: dict[str, Told] = {}
    for folder in sorted(arguments.folder.iterdir()):
        if folder.name in JOBS and (folder / "times.json").exists():
            judge_job(JOBS[folder.name], folder, found)
    text = "\n".join([*real_table(found), "", *simulated_table()])
    print(text)
    if arguments.write:
        today = datetime.datetime.now(tz=datetime.timezone.utc)
        about = f"{today:%Y-%m-%d}, torch {torch.__version__}."
        put("told_apart", "python -m tests.truth.told_apart build/truth --write", f"{about}\n\n{text}")


def judge_job(job: Job, folder: Path, found: dict[str, Told]) -> None:
    """Compare the recordings of one job with one another."""
    before, after = (
        [one for turn in ("first", "second") if (one := recording(folder / f"{variant}_{turn}" / "plain"))]
        for variant in ("before", "after")
    )
    kind = "ranks" if job.world > 1 else "one process"
    is_slower = job.name in TEN_PERCENT
    equal = [before, after] if not job.healthy or is_slower or "percent" in job.name else [[*before, *after]]
    for pair in (pair for some in equal for pair in combinations(some, 2)):
        _both_ways(found, f"equal code, one recording a side, {kind}", job.name, *([one] for one in pair))
    if len(equal) == 1 and len(before) == len(after) == 2:
        _both_ways(found, f"equal code, two recordings a side, {kind}", job.name, before, after)
    if is_slower and before and after:
        _apart(found, "ten percent, one recording a side", job.name, before[:1], after[:1])
        _apart(found, "ten percent, two recordings a side", job.name, before, after)
    elif job.expected is not None and before and after:
        _apart(found, f"a fix, one recording a side, {kind}", job.name, before[:1], after[:1])
        _apart(found, f"a fix, two recordings a side, {kind}", job.name, before, after)


def recording(folder: Path) -> Recording:
    """Digest what lies in a folder; empty without recordings."""
    return (
        [digest_file(file)[1] for file in find_traces(str(folder)).files if file.path]
        if folder.is_dir()
        else []
    )


def _both_ways(
    found: dict[str, Told], kind: str, name: str, one: Sequence[Recording], other: Sequence[Recording]
) -> None:
    for sides in ((one, other), (other, one)):
        found.setdefault(kind, Told()).count(name, verdict(*sides), None)


def _apart(
    found: dict[str, Told], kind: str, name: str, slow: Sequence[Recording], fast: Sequence[Recording]
) -> None:
    found.setdefault(kind, Told()).count(name, verdict(slow, fast), pb.Comparison.FASTER)


def verdict(base: Sequence[Recording], candidate: Sequence[Recording]) -> int:
    """Compare sides of a recording or more."""
    return compare(*([digest for one in side for digest in one] for side in (base, candidate))).verdict


def real_table(found: dict[str, Told]) -> Iterator[str]:
    yield "| real recordings, on a CPU | comparisons | told right | not told | told wrong |"
    yield "| --- | --- | --- | --- | --- |"
    for kind, told in sorted(found.items()):
        wrong = f"{len(told.wrong)}{': ' if told.wrong else ''}{', '.join(dict.fromkeys(told.wrong))}"
        yield f"| {kind} | {told.of} | {told.right} | {told.untold} | {wrong} |"


def simulated_table() -> Iterator[str]:
    yield "| simulated noise: recordings scatter by, steps by | equal code told apart | ten percent told |"
    yield "| --- | --- | --- |"
    for between, inside in SCATTER:
        for bursts in (False, True):
            noise = f"{between:.1%}, {inside:.0%}{', and one step in ten takes thrice as long' * bursts}"
            equal, slower = simulated(between, inside, 1.0, bursts), simulated(between, inside, 1.1, bursts)
            wrong = len(slower.wrong)
            yield (
                f"| {noise} | {len(equal.wrong)} of {equal.of} | "
                f"{slower.right} of {slower.of}{f', {wrong} wrong' if wrong else ''} |"
            )


def simulated(between: float, inside: float, times: float, bursts: bool) -> Told:
    """Compare two recordings a side, of which the candidate's steps take so many times as long.

    between, inside: the standard deviation of recordings and of their steps, as shares.
    """
    generator, told = np.random.default_rng(7), Told()

    def recorded(us: float, name: str) -> Recording:
        return [made(generator, us, (between, inside), bursts, name)]

    for number in range(SIMULATED):
        base, candidate = ([recorded(10_000 * by, f"{by}{turn}") for turn in (0, 1)] for by in (1.0, times))
        expected = pb.Comparison.SLOWER if times > 1 else None
        told.count(str(number), verdict(base, candidate), expected)
    return told


def made(
    generator: np.random.Generator, us: float, noise: tuple[float, float], bursts: bool, name: str
) -> Digest:
    """Make the digest of a recording on a CPU."""
    between, inside = noise
    steps = us * np.exp(between * generator.normal() + inside * generator.normal(size=STEPS))
    steps *= np.where(bursts & (generator.random(STEPS) < BURSTS), BURST, 1.0)
    return trace(
        np.rint(steps).astype(int).tolist(), name, device_name="", devices=0, origin_ns=int(name[-1])
    )


if __name__ == "__main__":
    main()
