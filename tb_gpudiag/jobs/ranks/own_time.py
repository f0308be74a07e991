"""Own time of the ranks: what each does itself in a step, without communicating and waiting.

In a job whose ranks wait for one another, all take as long for a step as the one with most own time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.digest.digest import Digest, numbers, texts
from tb_gpudiag.jobs.ranks.channels import Channels
from tb_gpudiag.jobs.ranks.operations import Parts, RankOperations
from tb_gpudiag.jobs.ranks.roles import roles_of
from tb_gpudiag.jobs.ranks.waits import Waits


@dataclass(frozen=True)
class OwnTime:
    """parts_ns: shape (members, steps, parts); parts that are communicating are 0. A rank that lacks a step
    has zeros. role: members with the same role do the same work, shape (members,). staged: they
    are stages of a pipeline without replicas, so that no two have to be equal.

    computing_same_ns, computing_other_ns: computing in stretches in which the rank ran the same kernels as
    its peers, with the same and with other sizes; shape (members,). step_ns: duration of each step, median
    over the ranks, shape (steps,).
    """

    parts_ns: Parts
    part_names: tuple[str, ...]
    steps: list[str]
    step_ns: Int64
    role: Int64
    staged: bool
    computing_same_ns: Int64
    computing_other_ns: Int64

    @cached_property
    def total_ns(self) -> Int64:
        """Own time, shape (members, steps)."""
        found: Int64 = self.parts_ns.sum(axis=2)
        return found

    @cached_property
    def present(self) -> Bool:
        """Mask of the steps that each member has, shape (members, steps)."""
        return np.asarray(self.total_ns > 0, np.bool_)

    @cached_property
    def usual_ns(self) -> Int64:
        """Own time of the rank's peers that have the step, shape (members, steps): the median, the lower one
        of two."""
        return self._usual(self.total_ns)

    @cached_property
    def excess_ns(self) -> Int64:
        """Own time more than that of the peers, shape (members, steps); negative if it is less. 0 where no
        peer has the step."""
        return np.where(self.present, self.total_ns - self.usual_ns, 0)

    @cached_property
    def excess_parts_ns(self) -> Parts:
        """What each part has more than with the peers, shape (members, steps, parts)."""
        usual = np.stack([self._usual(self.parts_ns[:, :, p]) for p in range(len(self.part_names))], axis=2)
        return np.where(self.present[:, :, None], self.parts_ns - usual, 0)

    def _usual(self, values: Int64) -> Int64:
        found = np.zeros_like(values)
        for role in np.unique(self.role):
            own = np.flatnonzero(self.role == role)
            present = self.present[own]
            ordered = np.sort(np.where(present, values[own], np.iinfo(np.int64).max), axis=0)
            middle = np.maximum(0, present.sum(axis=0) - 1) // 2
            found[own] = np.take_along_axis(ordered, middle[None], axis=0)
        return found


def own_time_of(
    members: Sequence[Digest], operations: RankOperations, channels: Channels, waits: Waits
) -> OwnTime:
    """Add up what the ranks did between their operations, by step."""
    step = _steps_of(operations, waits)
    names = operations.step.texts
    count = max(1, len(names))
    key = operations.member.astype(np.int64) * count + step
    shape = (len(members), count, len(operations.part_names))
    own = operations.own_parts
    parts = np.zeros(shape, np.int64)
    for p in np.flatnonzero(own).tolist():
        sums = np.bincount(key, weights=operations.parts[:, p], minlength=shape[0] * count)
        parts[:, :, p] = sums.reshape(shape[:2]).astype(np.int64)
    durations = _durations(members, names or [""])
    # A step that most ranks lack says nothing about the others.
    shared = np.count_nonzero(parts.sum(axis=2), axis=0) * 2 > len(members)
    order = np.flatnonzero(shared)
    order = order[np.argsort(_first_seen(step, operations.start_ns, count)[order], kind="stable")]
    role, staged = roles_of(operations, channels, waits, len(members))
    same, other = _compared_work(operations, waits, len(members))
    return OwnTime(
        parts_ns=parts[:, order],
        part_names=operations.part_names,
        steps=[(names or [""])[i] for i in order.tolist()],
        step_ns=durations[order],
        role=role,
        staged=staged,
        computing_same_ns=same,
        computing_other_ns=other,
    )


def _steps_of(operations: RankOperations, waits: Waits) -> Int64:
    """Step of each operation, shape (n,): that of the rank that came first, so that ranks agree."""
    step = operations.step.code.astype(np.int64)
    first = step[waits.row[waits.bounds[:-1]]] if len(waits) else np.zeros(0, np.int64)
    step[waits.row] = first[waits.collective] if len(waits) else step[waits.row]
    return step


def _first_seen(step: Int64, start: Int64, count: int) -> Int64:
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, step, start)
    return first


def _durations(members: Sequence[Digest], names: list[str]) -> Int64:
    """Median duration of the steps of each name, shape (names,)."""
    index = {name: i for i, name in enumerate(names)}
    found: list[list[int]] = [[] for _ in names]
    for member in members:
        lengths = numbers(member.steps, "end_ns") - numbers(member.steps, "start_ns")
        for name, length in zip(texts(member.steps, "name"), lengths.tolist(), strict=True):
            if name in index:
                found[index[name]].append(length)
    return np.array([int(np.median(lengths)) if lengths else 0 for lengths in found], np.int64)


def _compared_work(operations: RankOperations, waits: Waits, members: int) -> tuple[Int64, Int64]:
    """Computing of each member where it ran the same kernels as another rank before a collective, with the
    sizes that most of those ran, and with others."""
    same, other = np.zeros(members, np.int64), np.zeros(members, np.int64)
    row = waits.row
    if not len(row):
        return same, other
    work, sizes = operations.work[row], operations.work_sizes[row]
    computing = operations.parts[row, 0]
    has_work = operations.kernels[row] > 0
    order = np.lexsort((sizes, work, waits.collective))
    order = order[has_work[order]]
    c, w, z = waits.collective[order], work[order], sizes[order]
    new_work = np.r_[True, (np.diff(c) != 0) | (np.diff(w) != 0)][: len(order)]
    new_size = new_work | np.r_[True, np.diff(z) != 0][: len(order)]
    of_work, of_size = np.cumsum(new_work) - 1, np.cumsum(new_size) - 1
    alike_size = np.bincount(of_size)[of_size]
    most = np.zeros(int(of_work.max(initial=-1)) + 1, np.int64)
    np.maximum.at(most, of_work, alike_size)
    # Without two ranks that ran the same sizes, nothing is usual.
    compared = most[of_work] > 1
    usual = alike_size == most[of_work]
    member, took = operations.member[row[order]], computing[order]
    np.add.at(same, member[compared & usual], took[compared & usual])
    np.add.at(other, member[compared & ~usual], took[compared & ~usual])
    return same, other
