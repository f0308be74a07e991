"""Ranks that started to record later than the others: their first collective is late by that, for nothing
that they did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.jobs.ranks.clocks import Clocks
from tb_gpudiag.jobs.ranks.operations import RankOperations
from tb_gpudiag.jobs.ranks.waits import Waits
from tb_gpudiag.trace.events import Bool, Int64


@dataclass(frozen=True)
class Starts:
    """start_ns: when each member's recording began, on the reference clock, shape (members,).

    skew_ns: last - first arrival of each member's first collective that all share; own_skew_ns: the same if
    each arrival counts from the member's own start. collective: its index in Waits, -1 if there is none.
    late: mask of the collectives that are first of their channel, shape (collectives,).
    """

    start_ns: Int64
    collective: int
    skew_ns: int
    own_skew_ns: int
    last_member: int
    first: Bool


def starts_of(members: Sequence[Digest], operations: RankOperations, clocks: Clocks, waits: Waits) -> Starts:
    """Compare arrivals at the first collective with the starts of the recordings."""
    origin = np.array([member.about.origin_ns for member in members], np.int64)
    start = clocks.of_members(origin - operations.base_ns, np.arange(len(members)))
    first = np.zeros(len(waits), np.bool_)
    if not len(waits):
        return Starts(start, -1, 0, 0, -1, first)
    # The collective with most members among the first ones: all that waited for the start waited there.
    seen = np.zeros(len(members), np.bool_)
    best, size = 0, 0
    for index in range(len(waits)):
        own = waits.member[waits.bounds[index] : waits.bounds[index + 1]]
        if not seen[own].any() and len(own) > size:
            best, size = index, len(own)
        first[index] = not seen[own].all()
        seen[own] = True
        if seen[np.unique(waits.member)].all():
            break
    shared = slice(int(waits.bounds[best]), int(waits.bounds[best + 1]))
    since = waits.arrival_ns[shared] - start[waits.member[shared]]
    return Starts(
        start_ns=start,
        collective=best,
        skew_ns=int(waits.skew_ns[best]),
        own_skew_ns=int(since.max() - since.min()),
        last_member=int(waits.last_member[best]),
        first=first,
    )
