"""Digests of a job's ranks as work that can be replayed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.digest.digest import Digest, numbers, per_cause, texts
from tb_gpudiag.jobs.ranks.clocks import Clocks
from tb_gpudiag.jobs.ranks.operations import COMPUTING, IN_COLLECTIVE, RankOperations
from tb_gpudiag.jobs.ranks.waits import Waits
from tb_gpudiag.jobs.replay.rank_work import JobWork

OTHER: Final = "other"
"""The part of the time that the digest does not account for."""

# The host waits, for the GPU or for another rank. In a replay that can take less time.
_BLOCKED: Final = ("sync", IN_COLLECTIVE)

_RECEIVE: Final = "recv"


def job_work(members: Sequence[Digest], operations: RankOperations, waits: Waits, clocks: Clocks) -> JobWork:
    """Return what the ranks did between their collectives."""
    member = operations.member.astype(np.int64)
    start = clocks.corrected(operations, operations.start_ns)
    end = clocks.corrected(operations, operations.end_ns)
    begin = _on_one_clock(clocks, _window(members, operations, "window_start_ns"))
    finish = _on_one_clock(clocks, _window(members, operations, "window_end_ns"))

    occurs = operations.parts.sum(axis=0) > 0
    own = np.flatnonzero(operations.own_parts & (occurs | (np.arange(len(occurs)) == COMPUTING)))
    other = operations.start_ns - operations.since_ns - operations.parts.sum(axis=1)
    names = [operations.part_names[i] for i in own.tolist()]
    rest = np.zeros((len(members), len(names) + 1), np.int64)
    last = np.flatnonzero(np.diff(member, append=-1))
    rest[:, -1] = finish - begin
    rest[member[last], -1] = finish[member[last]] - start[last] - operations.exposed_ns[last]
    collective = np.full(len(operations), NONE, np.int64)
    collective[waits.row] = waits.collective
    hosts = [digest.about.host for digest in members]
    return JobWork(
        member=member,
        collective=collective,
        kind=_kinds(members, operations),
        bytes=operations.bytes,
        stream=np.concatenate([numbers(digest.collectives, "stream") for digest in members]),
        start_ns=start,
        end_ns=end,
        exposed_ns=operations.exposed_ns,
        receives=np.array([text == _RECEIVE for text in operations.kind.texts])[operations.kind.code],
        kernels=operations.kernels,
        parts_ns=np.concatenate([operations.parts[:, own], np.maximum(other, 0)[:, None]], axis=1),
        rest_ns=np.maximum(rest, 0),
        called_ns=clocks.corrected(operations, operations.called_ns),
        host_parts_ns=_on_host(members, operations, own),
        begin_ns=begin,
        finish_ns=finish,
        host=np.unique(hosts, return_inverse=True)[1].astype(np.int64),
        part_names=(*names, OTHER),
        step=_steps(members, operations),
    )


def _on_host(members: Sequence[Digest], operations: RankOperations, own: Int64) -> Int64:
    """Return what the hosts did between their calls by part, without being blocked: shape (n, len(own) + 1).

    Digests have it for the time between starts on the GPU. Within that, it is taken as evenly mixed.
    """
    found = np.zeros((len(operations), len(own) + 1))
    column = {operations.part_names[part]: i for i, part in enumerate(own.tolist())}
    window = _window(members, operations, "window_start_ns")
    bounds = np.searchsorted(operations.member, np.arange(len(members) + 1)).tolist()
    for digest, start, (low, high) in zip(members, window, pairwise(bounds), strict=True):
        causes = digest.about.causes
        spent = per_cause(digest.collectives, "host_ns", len(causes))
        order = low + np.argsort(operations.called_ns[low:high], kind="stable")
        times = np.concatenate([[start], operations.start_ns[low:high]])
        for i in np.flatnonzero(spent.any(axis=0)).tolist():
            if causes[i] not in _BLOCKED:
                until = np.interp(operations.called_ns[order], times, np.cumsum(np.append(0, spent[:, i])))
                found[order, column.get(causes[i], -1)] += np.diff(until, prepend=0)
    return np.rint(found).astype(np.int64)


def _window(members: Sequence[Digest], operations: RankOperations, name: str) -> Int64:
    """Return a time of each member's step window, by its own clock. Shape (members,)."""
    return np.array(
        [digest.about.origin_ns - operations.base_ns + getattr(digest.about, name) for digest in members],
        np.int64,
    )


def _on_one_clock(clocks: Clocks, times: Int64) -> Int64:
    """Return times of the members on the reference clock, shape (members,)."""
    return clocks.of_members(times, np.arange(len(times)))


def _kinds(members: Sequence[Digest], operations: RankOperations) -> Int64:
    """Number the kinds of collectives; between two ranks, also by which of them is higher. Shape (n,)."""
    rank = np.array([digest.about.rank for digest in members])[operations.member]
    peer = np.where(operations.source != NONE, operations.source, operations.destination)
    side = np.where(peer == NONE, 0, np.sign(peer - rank))
    return np.asarray(3 * operations.kind.code.astype(np.int64) + side + 1, np.int64)


def _steps(members: Sequence[Digest], operations: RankOperations) -> Int64:
    """Number the steps that are steady on all members, in order of time; NONE outside of them. Without such
    steps, all is one. Shape (n,)."""
    names = [texts(digest.steps.filter(digest.steps.column("steady")), "name") for digest in members]
    common = set(names[0]).intersection(*names[1:]) - {""}
    if not common:
        return np.zeros(len(operations), np.int64)
    number = {name: index for index, name in enumerate(name for name in names[0] if name in common)}
    found = np.array([number.get(name, NONE) for name in operations.step.texts], np.int64)
    return found[operations.step.code]
