"""Ranks that started to record later than the others: their first collective is late by that, for nothing
that they did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.jobs.ranks.clocks import Clocks
from tb_gpudiag.jobs.ranks.operations import RankOperations
from tb_gpudiag.jobs.ranks.waits import Waits


@dataclass(frozen=True)
class Starts:
    """start_ns: when each member's recording began, on the reference clock, shape (members,).

    first: mask of the collectives that are the first one of one of their members, shape (collectives,).
    later_ns: how much later the recording of the member that came last began than that of the one that came
    first, shape (collectives,).
    """

    start_ns: Int64
    first: Bool
    later_ns: Int64

    def explained(self, waits: Waits, unexplained: float) -> int:
        """Return the first collective with most waiting that the starts explain but for this share of it;
        NONE if they explain none."""
        rest = np.abs(waits.skew_ns - self.later_ns)
        found = np.flatnonzero(self.first & (self.later_ns > 0) & (rest <= unexplained * waits.skew_ns))
        return int(found[waits.skew_ns[found].argmax()]) if len(found) else NONE


def starts_of(members: Sequence[Digest], operations: RankOperations, clocks: Clocks, waits: Waits) -> Starts:
    """Find the first collectives, and when the recordings began."""
    origin = np.array([member.about.origin_ns for member in members], np.int64)
    start = clocks.of_members(origin - operations.base_ns, np.arange(len(members)))
    first = np.zeros(len(waits), np.bool_)
    earliest = np.full(len(members), len(waits), np.int64)
    np.minimum.at(earliest, waits.member, waits.collective)
    first[earliest[earliest < len(waits)]] = True
    later = start[waits.last_member] - start[waits.first_member]
    return Starts(start, first, later)
