"""Data-parallel ranks that do the same: two of them replay the whole job if only one of them straggles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.jobs.what_if_operations import Operations
from tb_gpudiag.jobs.what_if_schedule import Schedule, schedule
from tb_gpudiag.trace.events import Int64


@dataclass(frozen=True)
class OneOfMany:
    """One data-parallel rank, and one in place of all others.

    rows: operations of each rank in one order, shape (dp, n). schedule: of n operations of the one rank, and
    then n of the others.
    """

    rows: Int64
    schedule: Schedule


def one_of_many(operations: Operations, group: Int64, before: Int64, after: Int64) -> OneOfMany | None:
    """Return the graph of two ranks; None if the ranks have different operations or different dependencies.

    group, before, after: as for `schedule`, of the whole step.
    """
    rank, ranks = operations.dp_rank, operations.job.dp
    if ranks < 2 or len(set(np.bincount(rank, minlength=ranks))) > 1:
        return None
    rows = np.argsort(rank, kind="stable").reshape(ranks, -1)
    count = rows.shape[1]
    what = np.stack([operations.stage, operations.optype, operations.chunk])[:, rows]
    place = np.empty(len(operations), np.int64)
    place[rows] = np.arange(count)
    edge = place[before] * count + place[after]
    order = np.lexsort((edge, rank[before]))
    edges = np.bincount(rank[before], minlength=ranks)
    if (what != what[:, :1]).any() or len(set(edges)) > 1:
        return None
    by_rank = edge[order].reshape(ranks, -1)
    if (by_rank != by_rank[0]).any():
        return None
    two = rank < 2
    number = rank * count + place
    chosen = two[before]
    _, own_group = np.unique(group[rows[:2].ravel()], return_inverse=True)
    return OneOfMany(rows, schedule(own_group, number[before[chosen]], number[after[chosen]]))
