"""The work of ranks as a replay needs it: collectives, own work between them, and pieces that it can change.

Each rank is a line of its own work, measured by progress: ns of everything but exposed communication. Two
kinds of events cut the line. A collective is ready at some progress: it starts once the rank got there and
earlier collectives of its stream ended. At another progress, the rank waits for the end of a collective. Two
things are inferred, because digests do not say them:

- A rank waits for an exposed collective at the progress where its hidden part ends.
- A collective that queues behind another one on its stream was ready before it started. Peers run the same
  kernels, so it was ready after as many kernels as on the peer that started it after the fewest.

The host is a second line of work of each rank. A collective does not start before the host calls it, and the
host does not call it before it has done its earlier work. Time in which the host was blocked does not count,
because it can be shorter in a replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Float64, Int64
from tb_gpudiag.digest.digest import Digest, numbers, per_cause, texts
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.channels import RECEIVE
from tb_gpudiag.jobs.ranks.clocks import Clocks
from tb_gpudiag.jobs.ranks.operations import COMPUTING, IN_COLLECTIVE, RankOperations
from tb_gpudiag.jobs.ranks.waits import Waits
from tb_gpudiag.jobs.step_parts import OTHER

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
    # Number the kinds of collectives; between two ranks, also by direction. Shape (n,).
    rank = np.array([digest.about.rank for digest in members])[operations.member]
    peer = np.where(operations.source != NONE, operations.source, operations.destination)
    side = np.where(peer == NONE, 0, np.sign(peer - rank))
    return JobWork(
        member=member,
        collective=collective,
        kind=np.asarray(3 * operations.kind.code.astype(np.int64) + side + 1, np.int64),
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


@dataclass(frozen=True, eq=False)
class JobWork:
    """Collectives of all ranks and the work between them. A member is a rank; all times are on one clock.

    Columns have shape (n,), by member and then start, if the comment says nothing else; p is the number of
    parts.
    """

    member: Int64
    collective: Int64  # number of the matched collective, or NONE
    kind: Int64  # transfers of the same kind and bytes should take as long
    bytes: Int64
    stream: Int64
    start_ns: Int64
    end_ns: Int64
    exposed_ns: Int64  # while nothing computes
    receives: Bool  # from one other rank
    kernels: Int64  # that compute and start since the member's previous start
    parts_ns: Int64  # what the member did since its previous start, without exposed communication; (n, p)
    rest_ns: Int64  # the same after the member's last start, shape (members, p)
    called_ns: Int64  # when the host called it
    host_parts_ns: Int64  # what the host did since its previous call, without being blocked; shape (n, p)
    begin_ns: Int64  # of the member's step window, shape (members,)
    finish_ns: Int64
    host: Int64  # where the member runs, shape (members,)
    part_names: tuple[str, ...]
    step: Int64  # that launched it, the same number on all members; NONE outside of steps

    def __len__(self) -> int:
        return len(self.member)

    @property
    def members(self) -> int:
        return len(self.begin_ns)


# Gaps between kernels expose a little of a collective that nothing waits for.
WAITED: Final = 0.1

# Streams of a rank with collectives. Jobs have a few; a damaged trace can have any number.
MOST_STREAMS: Final = 64


@dataclass(frozen=True, eq=False)
class Pieces:
    """The work of all ranks, cut at its events; by member and then time. Shape (s,) each."""

    member: Int64
    ns: Float64  # by part, shape (s, p)
    block: Int64  # the collective that is ready next, n + member if there is none
    ready: Int64  # the collective that is ready when the piece ends, or NONE
    waits: Int64  # the collective whose end the member waits for after the piece, or NONE


def cut(work: JobWork, peers: Sequence[Int64]) -> Pieces:
    """Cut the ranks' work into pieces.

    peers: collectives of ranks that run the same program, in a common order; shape (ranks, n) each.
    """
    progress = _within(work, work.parts_ns.sum(axis=1))
    hidden = np.maximum(work.end_ns - work.start_ns - work.exposed_ns, 0)
    total = _total(work, progress)
    # The progress at which each collective is ready.
    kernels = _within(work, work.kernels)
    early = np.zeros(len(work), np.int64)
    for rows in peers:
        excess = kernels[rows] - kernels[rows].min(axis=0)
        # An excess that lasts to the end is the member's own: a rank that logs runs some more kernels.
        own = np.minimum.accumulate(excess[:, ::-1], axis=1)[:, ::-1]
        early[rows] = excess - own
    wide = int(kernels.max(initial=0)) + 1
    found = np.interp(work.member * wide + kernels - early, work.member * wide + kernels, progress)
    found = np.where(early > 0, np.minimum(found, progress), progress)
    ready_at = np.asarray(np.rint(found), np.int64)
    exposed = work.exposed_ns - np.where(work.receives, 0, _exposed_inside(work))
    awaited = np.flatnonzero(exposed > WAITED * (work.end_ns - work.start_ns))
    wait_at = _awaited_at(work, awaited, progress, hidden, total)

    count = len(work)
    operation = np.concatenate([np.arange(count), awaited, np.full(work.members, NONE)])
    is_ready = np.arange(len(operation)) < count
    member = np.concatenate([work.member, work.member[awaited], np.arange(work.members)])
    at = np.concatenate([ready_at, wait_at, total])
    latest = np.full(work.members, np.iinfo(np.int64).max)
    order = np.lexsort((np.concatenate([work.start_ns, work.end_ns[awaited], latest]), at, member))
    operation, is_ready, member, at = operation[order], is_ready[order], member[order], at[order]

    done = _parts_at(work, progress, hidden, member, at)
    ns = np.diff(done, axis=0, prepend=0.0)
    first = np.flatnonzero(np.diff(member, prepend=-1))
    ns[first] = done[first]
    ready = np.where(is_ready, operation, NONE)
    return Pieces(
        member,
        np.maximum(ns, 0),
        _next(np.where(operation == NONE, count + member, ready)),
        ready,
        np.where(is_ready, NONE, operation),
    )


def cut_host(work: JobWork) -> Pieces:
    """Return what the hosts did before they called each collective, as pieces."""
    called = np.lexsort((work.called_ns, work.member))
    nobody = np.full(len(work), NONE)
    return Pieces(work.member[called], work.host_parts_ns[called].astype(np.float64), called, called, nobody)


def _within(work: JobWork, values: Int64) -> Int64:
    """Sum values up to and including each collective, within its member."""
    total = np.cumsum(values)
    first = np.searchsorted(work.member, np.arange(work.members + 1))
    before = np.concatenate([[0], total])[first[:-1]]
    return np.asarray(total - before[work.member], np.int64)


def _total(work: JobWork, progress: Int64) -> Int64:
    """Return each member's progress at the end of its window, shape (members,)."""
    total = work.rest_ns.sum(axis=1)
    last = np.flatnonzero(np.diff(work.member, append=-1))
    total[work.member[last]] += progress[last]
    return np.asarray(total, np.int64)


def _exposed_inside(work: JobWork) -> Int64:
    """Return how much of each collective is exposed while collectives run that end earlier, shape (n,)."""
    lane, start, end = lanes(work), _in_line(work, work.start_ns), _in_line(work, work.end_ns)
    inside = -work.exposed_ns  # the sum below counts each collective itself, too
    for number in range(min(int(lane.max(initial=0)) + 1, MOST_STREAMS)):
        own = np.flatnonzero(lane == number)
        total = np.concatenate([[0], np.cumsum(work.exposed_ns[own])])
        first = np.searchsorted(end[own], start, side="right")
        last = np.maximum(np.searchsorted(end[own], end, side="right"), first)
        one = own[np.minimum(first, len(own) - 1)]  # this collective may have started before
        before = np.maximum(work.exposed_ns[one] - (end[one] - start), 0)
        inside += total[last] - total[first] - np.where(last > first, before, 0)
    return np.asarray(np.maximum(inside, 0), np.int64)


def _in_line(work: JobWork, times: Int64) -> Int64:
    """Return times of collectives on one axis, on which each member comes after the previous member."""
    first = work.start_ns[np.searchsorted(work.member, work.member)]
    wide = int((work.end_ns - first).max(initial=0)) + 1
    return np.asarray(work.member * wide + times - first, np.int64)


def lanes(work: JobWork) -> Int64:
    """Number the streams of each member from 0 on. Shape (n,)."""
    found, number = np.unique(np.stack([work.member, work.stream]), axis=1, return_inverse=True)
    first = np.searchsorted(found[0], np.arange(work.members))
    return np.asarray(number.reshape(-1) - first[work.member], np.int64)


def _awaited_at(work: JobWork, awaited: Int64, progress: Int64, hidden: Int64, total: Int64) -> Int64:
    """Return the progress at the ends of the awaited collectives: between the progress at the starts around
    each end."""
    member, end = work.member[awaited], _in_line(work, work.end_ns)[awaited]
    after = np.searchsorted(_in_line(work, work.start_ns), end, side="right")
    following = np.minimum(after, len(work) - 1)
    same = (after < len(work)) & (work.member[following] == member)
    latest = np.where(same, progress[following], total[member])
    return np.asarray(np.clip(progress[awaited] + hidden[awaited], progress[after - 1], latest), np.int64)


def _parts_at(work: JobWork, progress: Int64, hidden: Int64, member: Int64, at: Int64) -> Float64:
    """Return what members had done at some progress, by part. Shape (len(at), p).

    Work hidden behind a collective is computing, right after the collective's start; the rest is evenly
    mixed.
    """
    parts = np.concatenate([work.parts_ns, work.rest_ns])
    owner = np.concatenate([work.member, np.arange(work.members)])
    order = np.argsort(owner, kind="stable")
    parts, owner = parts[order].astype(np.float64), owner[order]
    until = np.concatenate([progress, _total(work, progress)])[order]
    behind = np.concatenate([hidden, np.zeros(work.members, np.int64)])[order]
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    since, behind = np.concatenate([[0], until[:-1]]), np.concatenate([[0], behind[:-1]])
    since[first], behind[first] = 0, 0

    wide = int(until.max(initial=0)) + 1
    row = np.minimum(np.searchsorted(owner * wide + until, member * wide + at), len(owner) - 1)
    alone = np.minimum(behind, parts[:, COMPUTING])
    mixed = parts.copy()
    mixed[:, COMPUTING] -= alone
    length = mixed.sum(axis=1)

    inside = at - since[row]
    share = np.clip((inside - alone[row]) / np.where(length[row] > 0, length[row], 1), 0, 1)
    before = np.cumsum(parts, axis=0) - parts
    before -= before[first[np.searchsorted(first, np.arange(len(owner)), side="right") - 1]]
    done = before[row] + share[:, None] * mixed[row]
    done[:, COMPUTING] += np.minimum(inside, alone[row])
    return np.asarray(done)


def _next(block: Int64) -> Int64:
    """Replace each NONE by the next number after it."""
    at = np.where(block != NONE, np.arange(len(block)), len(block))
    return np.asarray(block[np.minimum.accumulate(at[::-1])[::-1]], np.int64)
