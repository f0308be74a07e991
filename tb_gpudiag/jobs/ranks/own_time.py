"""Own time of the ranks: what each does itself in a step, without communicating and waiting; and their roles.

If the ranks of a job wait for one another, a step takes all of them as long as the rank with most own time.
Ranks with the same role do the same work, so they can be compared; in a pipeline, those of one stage.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np

from tb_gpudiag.arrays import Bool, Float64, Int64, numbered
from tb_gpudiag.digest.digest import Digest, numbers, texts
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.channels import Channels
from tb_gpudiag.jobs.ranks.operations import RankOperations, row_groups
from tb_gpudiag.jobs.ranks.waits import Waits

FEW_STEPS: Final = 5
"""In fewer steps, a rank may be the slowest one of each by chance."""


@dataclass(frozen=True, eq=False)
class OwnTime:
    """Own time by member and step.

    parts_ns: shape (members, steps, parts), without the communicating parts. Steps that a member lacks are 0.
    step_ns: duration of each step, median over the members, shape (steps,). role: the same number for members
    that do the same work, shape (members,). staged: the members are stages of a pipeline without replicas,
    which may differ. computing_same_ns, computing_other_ns: computing in stretches in which the member ran
    the same kernels as its peers, with the same and with other sizes; shape (members,) each.
    differs_share: share of the computing that can be compared before collectives to which ranks came with
    other sizes than one another, whichever is usual.
    """

    parts_ns: Int64
    part_names: tuple[str, ...]
    steps: list[str]
    step_ns: Int64
    role: Int64
    staged: bool
    computing_same_ns: Int64
    computing_other_ns: Int64
    differs_share: float

    def without(self, part: str) -> OwnTime:
        kept = np.array([name != part for name in self.part_names])
        return replace(self, parts_ns=np.where(kept, self.parts_ns, 0))

    @cached_property
    def total_ns(self) -> Int64:
        """Own time, shape (members, steps)."""
        return self.parts_ns.sum(axis=2)

    @cached_property
    def present(self) -> Bool:
        """Mask of the steps that each member has, shape (members, steps)."""
        return np.asarray(self.total_ns > 0, np.bool_)

    @cached_property
    def usual_ns(self) -> Int64:
        """Median own time of the member's peers that have the step, the lower one of two; shape (members,
        steps)."""
        return self._usual(self.total_ns)

    @cached_property
    def excess_ns(self) -> Int64:
        """Own time above the usual one, shape (members, steps); negative if it is below. 0 in steps that the
        member lacks."""
        return np.where(self.present, self.total_ns - self.usual_ns, 0)

    @cached_property
    def excess_parts_ns(self) -> Int64:
        """Parts above their usual times, shape (members, steps, parts)."""
        usual = np.stack([self._usual(self.parts_ns[:, :, p]) for p in range(len(self.part_names))], axis=2)
        return np.where(self.present[:, :, None], self.parts_ns - usual, 0)

    @cached_property
    def certainty(self) -> Float64:
        """How sure it is that a member takes longer than its peers: the mean difference divided by its
        standard error over the steps, shape (members,). 0 if it takes no longer, or without peers.

        Compared is with the other members only: of two, the slower one is always above the lower median.
        """
        found = np.zeros(len(self.role))
        for own, total, others in self._compared():
            more = total - others
            error = np.maximum(more.std(axis=1, ddof=1) / math.sqrt(more.shape[1]), 1.0)
            found[own] = np.maximum(0, more.mean(axis=1) / error)
        return found

    @cached_property
    def times_in_each_step(self) -> Float64:
        """At least how many times as long as its peers a member takes, in each of FEW_STEPS or more, shape
        (members,). 0 without peers or with fewer steps."""
        found = np.zeros(len(self.role))
        for own, total, others in self._compared():
            if total.shape[1] >= FEW_STEPS:
                found[own] = (total / np.maximum(1, others)).min(axis=1)
        return found

    def _compared(self) -> Iterator[tuple[Int64, Int64, Int64]]:
        """Yield the members of each role, their own times in the steps that all of them have, and those of
        their peers: shape (own,), then (own, steps). At least two members, and two steps."""
        for role in np.unique(self.role).tolist():
            own = np.flatnonzero(self.role == role)
            steps = np.flatnonzero(self.present[own].all(axis=0))
            if len(own) >= 2 and len(steps) >= 2:
                total = self.total_ns[np.ix_(own, steps)]
                yield own, total, _of_the_others(total)

    def _usual(self, values: Int64) -> Int64:
        found = np.zeros_like(values)
        for role in np.unique(self.role):
            own = np.flatnonzero(self.role == role)
            present = self.present[own]
            ordered = np.sort(np.where(present, values[own], np.iinfo(np.int64).max), axis=0)
            middle = np.maximum(0, present.sum(axis=0) - 1) // 2
            found[own] = np.take_along_axis(ordered, middle[None], axis=0)
        return found


def _of_the_others(values: Int64) -> Int64:
    """Return the lower median of the other rows for each row, shape (rows, columns) as `values`."""
    ordered = np.sort(values, axis=0)
    middle = (len(values) - 2) // 2
    place = np.argsort(np.argsort(values, axis=0, kind="stable"), axis=0)
    return np.asarray(np.where(place > middle, ordered[middle], ordered[middle + 1]), np.int64)


def own_time_of(
    members: Sequence[Digest], operations: RankOperations, channels: Channels, waits: Waits
) -> OwnTime:
    """Add up what the ranks did between their operations, by step."""
    # The step of each operation, shape (n,). In a collective, all ranks get that of the first arrival.
    step = operations.step.code.astype(np.int64)
    first = step[waits.row[waits.bounds[:-1]]] if len(waits) else np.zeros(0, np.int64)
    step[waits.row] = first[waits.collective] if len(waits) else step[waits.row]
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
    role, staged = _roles(operations, channels, waits, len(members))
    same, other, differs = _compared_work(operations, waits, len(members))
    return OwnTime(
        parts_ns=parts[:, order],
        part_names=operations.part_names,
        steps=[(names or [""])[i] for i in order.tolist()],
        step_ns=durations[order],
        role=role,
        staged=staged,
        computing_same_ns=same,
        computing_other_ns=other,
        differs_share=differs,
    )


def _first_seen(step: Int64, start: Int64, count: int) -> Int64:
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, step, start)
    return first


def _durations(members: Sequence[Digest], names: list[str]) -> Int64:
    """Return the median duration of the steps of each name, shape (names,)."""
    index = {name: i for i, name in enumerate(names)}
    found: list[list[int]] = [[] for _ in names]
    for member in members:
        lengths = numbers(member.steps, "end_ns") - numbers(member.steps, "start_ns")
        for name, length in zip(texts(member.steps, "name"), lengths.tolist(), strict=True):
            if name in index:
                found[index[name]].append(length)
    return np.array([int(np.median(lengths)) if lengths else 0 for lengths in found], np.int64)


def _compared_work(operations: RankOperations, waits: Waits, members: int) -> tuple[Int64, Int64, float]:
    """Return the computing of each member before collectives where another rank ran the same kernels: with
    the sizes that most such ranks had, and with other sizes. And the share of it where sizes differ."""
    same, other = np.zeros(members, np.int64), np.zeros(members, np.int64)
    row = waits.row
    if not len(row):
        return same, other, 0.0
    work, sizes = operations.work[row], operations.work_sizes[row]
    computing = operations.parts[row, 0]
    has_work = operations.work[row] != 0
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
    together = np.bincount(of_work)[of_work]
    several = together > 1
    differs = several & (alike_size < together)
    return same, other, float(took[differs].sum() / max(1, took[several].sum()))


def _roles(operations: RankOperations, channels: Channels, waits: Waits, members: int) -> tuple[Int64, bool]:
    """Number each member's role, and say whether the roles are the stages of a pipeline without replicas.

    Such stages are compared with one another, because there is nothing else to compare them with.
    """
    kinds = _kinds(operations, channels, waits, members)
    stage = _stages(channels, members)
    role = row_groups(kinds if not stage.any() else np.zeros(members, np.int64), stage)[1]
    staged = bool(stage.any()) and int(np.bincount(role).min()) < 2
    return (np.zeros(members, np.int64), True) if staged else (role, False)


def _stages(channels: Channels, members: int) -> Int64:
    """Return the stage of each member in a pipeline, shape (members,): one more than the last stage that
    sends to it from a lower rank. All 0 without a pipeline."""
    stage = np.zeros(members, np.int64)
    if not channels.is_pipeline:
        return stage
    forward = sorted(
        channel.members
        for channel in channels.channels
        if channel.pair is not None and channel.pair[0] < channel.pair[1] and len(channel.members) == 2
    )
    for sender, receiver in forward:  # in order of the sender: all before it are known
        stage[receiver] = max(stage[receiver], stage[sender] + 1)
    return stage


def _kinds(operations: RankOperations, channels: Channels, waits: Waits, members: int) -> Int64:
    """Number the members by the kinds of operations that they call, and the sizes of their groups."""
    row = waits.row
    if not len(row):
        return np.zeros(members, np.int64)
    size = np.array([0 if channel.pair else channel.size for channel in channels.channels], np.int64)
    columns = (
        operations.member[row].astype(np.int64),
        operations.kind.code[row].astype(np.int64),
        size[channels.of[row]],
    )
    first, _ = row_groups(*columns)
    takes_part: dict[int, set[tuple[int, ...]]] = {}
    for member, *what in zip(*(column[first].tolist() for column in columns), strict=True):
        takes_part.setdefault(member, set()).add(tuple(what))
    kinds = [frozenset(takes_part.get(member, ())) for member in range(members)]
    return numbered(kinds)
