"""Roles: which ranks do the same work, so that they can be compared. In a pipeline: those of one stage."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.jobs.ranks.channels import Channels
from tb_gpudiag.jobs.ranks.operations import RankOperations
from tb_gpudiag.jobs.ranks.row_groups import row_groups
from tb_gpudiag.jobs.ranks.waits import Waits


def roles_of(
    operations: RankOperations, channels: Channels, waits: Waits, members: int
) -> tuple[Int64, bool]:
    """Number each member's role, and say whether these are the stages of a pipeline without replicas.

    Such stages are compared with one another, because there is nothing else to compare them with.
    """
    kinds = _kinds(operations, channels, waits, members)
    stage = stages_of(channels, members)
    role = row_groups(kinds if not stage.any() else np.zeros(members, np.int64), stage)[1]
    staged = bool(stage.any()) and int(np.bincount(role).min()) < 2
    return (np.zeros(members, np.int64), True) if staged else (role, False)


def stages_of(channels: Channels, members: int) -> Int64:
    """Stage of each member in a pipeline, shape (members,): one more than that of the ranks before it, which
    send to it and have lower numbers. All 0 without a pipeline."""
    stage = np.zeros(members, np.int64)
    forward = sorted(
        channel.members
        for channel in channels.channels
        if channel.pair is not None and channel.pair[0] < channel.pair[1] and len(channel.members) == 2
    )
    for sender, receiver in forward:  # in order of the sender: all before it are known
        stage[receiver] = max(stage[receiver], stage[sender] + 1)
    return stage


def _kinds(operations: RankOperations, channels: Channels, waits: Waits, members: int) -> Int64:
    """Number each member by the kinds of operations and the sizes of groups that it takes part in."""
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
    known = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    return np.array([known[kind] for kind in kinds], np.int64)
