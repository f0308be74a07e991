"""Jobs of many ranks: matching, clocks and waiting, compared with simulated truth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tb_gpudiag.digest.build_digest import build_digest
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.members import find_sets
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.read import read_trace
from tests.builder import EPOCH_NS
from tests.simulator.jobs import CollectiveTruth, SimulatedJob
from tests.simulator.jobs.cases import JobCase

CLOCK_SLACK_NS = 2_000
"""A clock's error may exceed the stated residual by this much."""

TIME_ERROR = 0.01
"""Aim for a rank's waiting and transfer: error as a share of the window."""


@dataclass(frozen=True)
class Measured:
    """One job's facts next to its truth. Errors are the worst of its ranks.

    matched: collectives found with exactly the ranks that met; of: all that two recorded ranks or more share.
    clock_error_ns: how far a rank's corrected times are off, relative to the first rank's clock.
    """

    matched: int
    of: int
    clock_error_ns: float
    residual_ns: float
    waiting_error: float
    transfer_error: float

    @property
    def clocks_known(self) -> bool:
        return not math.isnan(self.residual_ns)

    @property
    def clocks_right(self) -> bool:
        return self.clock_error_ns <= self.residual_ns + CLOCK_SLACK_NS


def facts_of(case: JobCase, run: SimulatedJob, folder: Path) -> JobFacts:
    """Write the traces, digest each, and put them together as the commands do."""
    run.write(folder, case.recorded)
    (found,) = find_sets(digests(folder)).sets
    return JobFacts(found)


def digests(folder: Path) -> Iterator[Digest]:
    for file in find_traces(str(folder)).files:
        facts = Facts(read_trace(file.path))
        yield build_digest(facts, build_report(facts, file), file)


def measure(case: JobCase, run: SimulatedJob, facts: JobFacts) -> Measured:
    """Compare facts with the truth."""
    recorded = set(case.recorded)
    shared = {one.index: one for one in run.truth.collectives if len(recorded & one.arrival_ns.keys()) > 1}
    at = _by_span(run, shared)
    by_index: dict[int | None, CollectiveTruth] = dict(shared.items())
    operations, waits = facts.operations, facts.waits
    base_ns = min(member.about.origin_ns for member in facts.set.members)
    ranks = np.array(facts.set.ranks)
    matched = 0
    clock_errors: dict[int, list[int]] = {int(rank): [] for rank in ranks}
    waiting: Counter[int] = Counter()
    transfer: Counter[int] = Counter()
    reference = run.truth.clocks[run.job.host_of(int(ranks[0]))]
    for begin, end in zip(waits.bounds[:-1].tolist(), waits.bounds[1:].tolist(), strict=True):
        rows = waits.row[begin:end]
        members = ranks[waits.member[begin:end]].tolist()
        shift = base_ns - EPOCH_NS
        starts, ends = operations.start_ns[rows] + shift, operations.end_ns[rows] + shift
        found = set(map(at.get, zip(members, starts.tolist(), ends.tolist(), strict=True)))
        truth = by_index.get(found.pop()) if len(found) == 1 else None
        if truth is None:
            continue
        matched += set(members) == recorded & truth.arrival_ns.keys()
        last = max(truth.arrival_ns[rank] for rank in members)
        for place, rank in zip(range(begin, end), members, strict=True):
            true_ns = reference.local_ns(truth.arrival_ns[rank]) + EPOCH_NS - base_ns
            clock_errors[rank].append(int(waits.arrival_ns[place]) - true_ns)
            waiting[rank] += int(waits.waiting_ns[place]) - (last - truth.arrival_ns[rank])
            transfer[rank] += int(waits.transferring_ns[place]) - (truth.end_ns[rank] - last)
    errors = [float(np.median(found)) for found in clock_errors.values() if found]
    window = run.truth.window_ns
    return Measured(
        matched=matched,
        of=len(shared),
        clock_error_ns=max((abs(error - errors[0]) for error in errors), default=0.0),
        residual_ns=facts.clocks.residual_ns,
        waiting_error=max((abs(ns) for ns in waiting.values()), default=0) / window,
        transfer_error=max((abs(ns) for ns in transfer.values()), default=0) / window,
    )


def _by_span(run: SimulatedJob, shared: dict[int, CollectiveTruth]) -> dict[tuple[int, int, int], int]:
    """Return (rank, local start, local end) of its kernel -> index of the collective."""
    found = {}
    for index, one in shared.items():
        for rank, start_ns in one.arrival_ns.items():
            clock = run.truth.clocks[run.job.host_of(rank)]
            found[rank, clock.local_ns(start_ns), clock.local_ns(one.end_ns[rank])] = index
    return found
