"""Replay of operations that wait for one another: when each ends, for many sets of durations at once."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Float64, Int64
from tb_gpudiag.errors import TraceError
from tb_gpudiag.frozen import dataclass


@dataclass(frozen=True, eq=False)
class Level:
    """Operations that wait for earlier levels only.

    operations: shape (m,). group: index of each operation's group in this level, shape (m,).
    awaited: operations that the groups wait for, in the groups' order, shape (e,).
    first: where the awaited operations of each group begin, shape (groups,); empty if no group waits.
    """

    operations: Int64
    group: Int64
    awaited: Int64
    first: Int64


@dataclass(frozen=True, eq=False)
class Schedule:
    """Operations by level. A replay takes a few NumPy calls per level."""

    count: int
    levels: tuple[Level, ...]

    def ends(self, durations: Float64) -> Float64:
        """Return when operations end if the job starts at 0, shape (n, c), for durations of shape (n, c).

        The operations of a group start together, once everything that any of them waits for has ended.
        """
        ends = np.empty_like(durations)
        for level in self.levels:
            took = durations[level.operations]
            if len(level.first):
                starts = np.maximum.reduceat(ends[level.awaited], level.first, axis=0)
                took += starts[level.group]
            ends[level.operations] = took
        return ends


def schedule(group: Int64, before: Int64, after: Int64) -> Schedule:
    """Order operations for a replay.

    group: operations with the same number start together; numbers from 0 on without gaps, shape (n,).
    before, after: operation `after[i]` waits until `before[i]` ended, shape (e,) each.
    Raise TraceError if operations wait for one another in a circle.
    """
    groups = int(group.max(initial=-1)) + 1
    level = _levels(groups, group[before], group[after])
    place = np.empty(groups, np.int64)
    place[np.argsort(level, kind="stable")] = np.arange(groups)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(level))])

    operations = np.argsort(place[group], kind="stable")
    edges = np.argsort(place[group[after]], kind="stable")
    operations_at = np.searchsorted(place[group[operations]], bounds)
    edges_at = np.searchsorted(place[group[after[edges]]], bounds)
    levels = []
    for i, low in enumerate(bounds[:-1]):
        own = operations[operations_at[i] : operations_at[i + 1]]
        waits = edges[edges_at[i] : edges_at[i + 1]]
        first = np.flatnonzero(np.diff(place[group[after[waits]]], prepend=-1))
        levels.append(Level(own, place[group[own]] - low, before[waits], first))
    return Schedule(len(group), tuple(levels))


def _levels(groups: int, before: Int64, after: Int64) -> Int64:
    """Return the length of the longest chain of groups that each group waits for, shape (groups,)."""
    waits = np.bincount(after, minlength=groups)
    order = np.argsort(before, kind="stable")
    followers, first = after[order], np.searchsorted(before[order], np.arange(groups + 1))
    level = np.full(groups, -1)
    ready, depth = np.flatnonzero(waits == 0), 0
    while len(ready):
        level[ready] = depth
        counts = first[ready + 1] - first[ready]
        inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        freed, times = np.unique(followers[np.repeat(first[ready], counts) + inside], return_counts=True)
        waits[freed] -= times
        ready, depth = freed[waits[freed] == 0], depth + 1
    if (level < 0).any():
        raise TraceError(
            f"{int((level < 0).sum())} operations wait for one another in a circle",
            remedy="check that all ranks record the same operations in the same order",
        )
    return level
