"""Truth about a simulated job. Times are true ns: hosts' clocks differ from it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulator.jobs.network import Called
from tests.simulator.jobs.settings import DistributedJob


@dataclass(frozen=True)
class Clock:
    """A host's clock. offset_ns: local time - true time at true time 0."""

    offset_ns: int
    drift_ppm: float

    def local_ns(self, true_ns: int) -> int:
        return true_ns + self.offset_at(true_ns)

    def offset_at(self, true_ns: int) -> int:
        return self.offset_ns + round(true_ns * self.drift_ppm / 1e6)


@dataclass(frozen=True)
class CollectiveTruth:
    """One collective, or a send with its receive. index: place in order of the last arrival.

    slowed: its transfer passes the slow link of a fault. arrival_ns and end_ns: of each rank's kernel.
    sequence: as c10d counts it in the group, from 1; for sends, the number of the pair's transfers.
    """

    index: int
    group: str
    kind: str
    sequence: int
    bytes: int
    step: int
    slowed: bool
    arrival_ns: dict[int, int]
    end_ns: dict[int, int]

    @property
    def last_rank(self) -> int:
        return max(self.arrival_ns, key=lambda rank: self.arrival_ns[rank])

    @property
    def last_arrival_ns(self) -> int:
        return max(self.arrival_ns.values())

    @property
    def skew_ns(self) -> int:
        return self.last_arrival_ns - min(self.arrival_ns.values())

    def waiting_ns(self, rank: int) -> int:
        return self.last_arrival_ns - self.arrival_ns[rank]

    def transferring_ns(self, rank: int) -> int:
        return self.end_ns[rank] - self.last_arrival_ns

    @property
    def transfer_ns(self) -> int:
        """The shortest of the ranks' transfers."""
        return min(self.end_ns.values()) - self.last_arrival_ns


@dataclass(frozen=True)
class RankTruth:
    """One rank. exposed_ns: communication kernels while nothing computes, over the whole recording."""

    host: str
    waiting_ns: int
    transferring_ns: int
    busy_ns: int
    exposed_ns: int
    last_in: int  # collectives in which it arrived last


@dataclass(frozen=True)
class JobTruth:
    """What was planted and what it did.

    ranks: those with the fault; empty where it is not one rank's. suspects: those that transfers alone cannot
    tell from them, for a slow link; all of a group if all that it sends is slow, or none if everything is.

    step_ns: mean over the steps after the first, from the end of one step's optimizer on the GPU to that of
    the next, of the slowest rank. window_ns: from the first rank's start to the end of all work.
    """

    healthy: bool
    rule: str | None
    cause: str | None
    ranks: tuple[int, ...]
    suspects: tuple[int, ...]
    groups: dict[str, tuple[int, ...]]
    clocks: dict[str, Clock]
    collectives: list[CollectiveTruth]
    by_rank: dict[int, RankTruth]
    step_ns: float
    window_ns: int


def collective_truth(called: list[Called]) -> list[CollectiveTruth]:
    found = []
    for one in called:
        works = one.meeting.work
        arrival = {rank: work.start_ns for rank, work in works.items()}
        end = {rank: work.end_ns for rank, work in works.items() if work.end_ns is not None}
        found.append((max(arrival.values()), one, arrival, end))
    found.sort(key=lambda row: row[0])
    return [
        CollectiveTruth(
            i, one.group.name, one.kind, one.number + 1, one.bytes, one.step, one.slowed, arrival, end
        )
        for i, (_, one, arrival, end) in enumerate(found)
    ]


def slow_ranks(job: DistributedJob) -> tuple[int, ...]:
    fault = job.fault
    return () if fault is None or fault.kind in ("uneven_batches", "not_overlapped") else fault.ranks


def suspected(called: list[Called], ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ranks that take part in all slow transfers, and in no usual one while the link was slow."""
    slowed = [one for one in called if one.slowed]
    if not slowed:
        return ranks
    steps = {one.step for one in slowed}
    usual = [one for one in called if one.passes and not one.slowed and one.step in steps]
    if not usual and steps == {one.step for one in called}:
        return ()
    found = set.intersection(*(set(one.meeting.ranks) for one in slowed))
    return tuple(sorted(found.difference(*(one.meeting.ranks for one in usual))))
