"""JobWork from digests: what the ranks of a job did between their collectives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.digest.digest import Digest, numbers, per_cause, texts
from tb_gpudiag.jobs.part_words import OTHER
from tb_gpudiag.jobs.ranks.channels import RECEIVE
from tb_gpudiag.jobs.ranks.clocks import Clocks
from tb_gpudiag.jobs.ranks.operations import COMPUTING, IN_COLLECTIVE, RankOperations
from tb_gpudiag.jobs.ranks.waits import Waits
from tb_gpudiag.jobs.replay.job_work import JobWork

# The host waits for the GPU or for another rank. In a replay, it can wait for a shorter time.
_BLOCKED: Final = ("sync", IN_COLLECTIVE)


def job_work(members: Sequence[Digest], operations: RankOperations, waits: Waits, clocks: Clocks) -> JobWork:
    """Return what the ranks did between their collectives."""
    member = operations.member.astype(np.int64)
    start = clocks.corrected(operations, operations.start_ns)
    end = clocks.corrected(operations, operations.end_ns)
    occurs = operations.parts.sum(axis=0) > 0
    own = np.flatnonzero(operations.own_parts & (occurs | (np.arange(len(occurs)) == COMPUTING)))
    windows = [(digest.about.window_start_ns, digest.about.window_end_ns) for digest in members]
    begin, finish = operations.origin_ns + np.array(windows, np.int64).T
    host_parts = _on_host(members, operations, own, begin)
    begin, finish = (clocks.of_members(times, np.arange(len(members))) for times in (begin, finish))
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
        receives=operations.of_kinds({RECEIVE}),
        kernels=operations.kernels,
        parts_ns=np.concatenate([operations.parts[:, own], np.maximum(other, 0)[:, None]], axis=1),
        rest_ns=np.maximum(rest, 0),
        called_ns=clocks.corrected(operations, operations.called_ns),
        host_parts_ns=host_parts,
        begin_ns=begin,
        finish_ns=finish,
        host=np.unique(hosts, return_inverse=True)[1].astype(np.int64),
        part_names=(*names, OTHER),
        step=_steps(members, operations),
    )


def _on_host(members: Sequence[Digest], operations: RankOperations, own: Int64, begin_ns: Int64) -> Int64:
    """Return what the hosts did between their calls by part, without being blocked: shape (n, len(own) + 1).

    Digests say it for the time between starts on the GPU. Within that time, the parts count as evenly mixed.
    """
    found = np.zeros((len(operations), len(own) + 1))
    column = {operations.part_names[part]: i for i, part in enumerate(own.tolist())}
    bounds = np.searchsorted(operations.member, np.arange(len(members) + 1)).tolist()
    for digest, begin, (low, high) in zip(members, begin_ns, pairwise(bounds), strict=True):
        causes = digest.about.causes
        spent = per_cause(digest.collectives, "host_ns", len(causes))
        order = low + np.argsort(operations.called_ns[low:high], kind="stable")
        times = np.concatenate([[begin], operations.start_ns[low:high]])
        for i in np.flatnonzero(spent.any(axis=0)).tolist():
            if causes[i] not in _BLOCKED:
                until = np.interp(operations.called_ns[order], times, np.cumsum(np.append(0, spent[:, i])))
                found[order, column.get(causes[i], -1)] += np.diff(until, prepend=0)
    return np.rint(found).astype(np.int64)


def _kinds(members: Sequence[Digest], operations: RankOperations) -> Int64:
    """Number the kinds of collectives; between two ranks, also by direction. Shape (n,)."""
    rank = np.array([digest.about.rank for digest in members])[operations.member]
    peer = np.where(operations.source != NONE, operations.source, operations.destination)
    side = np.where(peer == NONE, 0, np.sign(peer - rank))
    return np.asarray(3 * operations.kind.code.astype(np.int64) + side + 1, np.int64)


def _steps(members: Sequence[Digest], operations: RankOperations) -> Int64:
    """Number the steps that are steady on all members, in time order; NONE outside of them. Without such
    steps, everything is step 0. Shape (n,)."""
    names = [texts(digest.steady_steps, "name") for digest in members]
    common = set(names[0]).intersection(*names[1:]) - {""}
    if not common:
        return np.zeros(len(operations), np.int64)
    number = {name: index for index, name in enumerate(name for name in names[0] if name in common)}
    found = np.array([number.get(name, NONE) for name in operations.step.texts], np.int64)
    return found[operations.step.code]
