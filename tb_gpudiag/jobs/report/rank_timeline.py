"""A timeline with a lane per rank: what each rank does between its collectives, and the collectives."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.digest.digest import WORK, Digest, numbers, time_parts
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.operations import COMMUNICATING, COMPUTING
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import us

LANES_LIMIT: Final = 64

# With these, the JSON of a timeline has some 64 KB for eight ranks, and 95 KB for 64. No screen has more
# than some hundred places per lane to point at.
STRETCHES_LIMIT: Final = 1_024
STRETCHES_PER_LANE: Final = 100
COLLECTIVES_LIMIT: Final = 768
COLLECTIVES_PER_LANE: Final = 80

# Bits of the time that decides which neighbors are merged.
_PRECISION: Final = 5

SEVERAL: Final = 0
"""The kind of merged collectives. Others are their index in `kinds` plus 1."""


@dataclass(frozen=True, eq=False)
class _Stretches:
    """bounds: shape (n + 1,), ns from the recording's start. parts: shape (n, parts)."""

    bounds: Int64
    parts: Int64


def rank_timeline(facts: JobFacts) -> pb.RankTimeline:
    """Build the timeline. With too many ranks, it has those that the others wait for longest."""
    waits, operations, members = facts.waits, facts.operations, facts.set.members
    waited_for = _waited_for(facts)
    by_member = np.bincount(operations.member, weights=waited_for, minlength=len(members))
    shown = np.sort(np.argsort(-by_member, kind="stable")[:LANES_LIMIT])
    waiting, transfer = (np.zeros(len(operations), np.int64) for _ in range(2))
    waiting[waits.row], transfer[waits.row] = waits.waiting_ns, waits.transferring_ns
    base, zero = operations.origin_ns, facts.starts.start_ns.min()
    bounds = np.searchsorted(operations.member, np.arange(len(members) + 1))
    lanes, merged = [], False
    for i in shown.tolist():
        rows = slice(int(bounds[i]), int(bounds[i + 1]))
        whole = _stretches(members[i], operations.part_names[len(WORK) :])
        own = _merged(whole, min(STRETCHES_PER_LANE, STRETCHES_LIMIT // len(shown)))
        known = bool(facts.clocks.known[i])

        def placed(times: Int64, i: int = i, known: bool = known) -> list[float]:
            """Times of the rank's recording on the axis of the timeline."""
            if known:
                times = facts.clocks.of_members(times + base[i], np.full(len(times), i)) - zero
            return [us(time) for time in times]

        collectives = _collectives(
            np.stack([operations.start_ns[rows] - base[i], operations.end_ns[rows] - base[i]], axis=1),
            np.stack([waiting[rows], transfer[rows], waited_for[rows]], axis=1),
            operations.kind.code[rows].astype(np.int64) + 1,
            min(COLLECTIVES_PER_LANE, COLLECTIVES_LIMIT // len(shown)),
        )
        merged |= len(own.parts) < len(whole.parts) or bool((collectives.count > 1).any())
        row, part = np.nonzero(own.parts)
        lanes.append(
            pb.RankLane(
                at=i,
                aligned=known,
                start_us=placed(own.bounds[:1])[0],
                end_us=placed(own.bounds[1:]),
                parts=np.bincount(row, minlength=len(own.parts)).tolist(),
                part=part.tolist(),
                part_us=[us(ns) for ns in own.parts[row, part]],
                collectives=pb.LaneCollectives(
                    start_us=placed(collectives.span_ns[:, 0]),
                    end_us=placed(collectives.span_ns[:, 1]),
                    waiting_us=[us(ns) for ns in collectives.sums_ns[:, 0]],
                    transfer_us=[us(ns) for ns in collectives.sums_ns[:, 1]],
                    waited_for_us=[us(ns) for ns in collectives.sums_ns[:, 2]],
                    count=collectives.count.tolist(),
                    kind=collectives.kind.tolist(),
                ),
            )
        )
    return pb.RankTimeline(
        parts=operations.part_names,
        kinds=operations.kind.texts,
        lanes=lanes,
        left_out=len(members) - len(shown),
        merged=merged,
    )


def _waited_for(facts: JobFacts) -> Int64:
    """How long the other ranks wait, in sum, for the operation that is the last of its collective; shape
    (operations,)."""
    waits = facts.waits
    total = np.bincount(waits.collective, weights=waits.waiting_ns, minlength=len(waits))
    found = np.zeros(len(facts.operations), np.int64)
    if len(waits):
        found[waits.last_row] = total
    return found


def _stretches(member: Digest, causes: tuple[str, ...]) -> _Stretches:
    """Cut the step window at the starts of collectives, and at their ends where what runs in them is known.

    The parts add up to those of the steady steps: what the collectives do not say is after the last one.
    """
    about, table, on_gpu = member.about, member.collectives, member.about.devices > 0
    of_steps, parts = (
        np.maximum(0, time_parts(rows, about, causes, on_gpu=on_gpu)) for rows in (member.steady_steps, table)
    )
    if not len(table):
        bounds = np.r_[np.int64(about.window_start_ns), numbers(member.steady_steps, "end_ns")]
        return _Stretches(np.maximum.accumulate(bounds), of_steps)
    start, end = numbers(table, "start_ns"), numbers(table, "end_ns")
    rest = np.maximum(0, of_steps.sum(axis=0) - parts.sum(axis=0))
    # Row k is what the rank does from the start of collective k - 1 on; the first one, before any.
    parts = np.concatenate([parts, rest[None]])
    bounds = np.r_[np.int64(about.window_start_ns), start, np.int64(max(about.window_end_ns, start[-1]))]
    bounds = np.maximum.accumulate(bounds)
    inside = np.zeros_like(parts)
    if on_gpu:
        inside[1:, COMMUNICATING] = numbers(table, "exposed_ns")
        inside[1:, COMPUTING] = end - start - inside[1:, COMMUNICATING]
    alone = np.r_[False, True, np.maximum.accumulate(end)[:-1] <= start[1:]]
    fits = (inside >= 0).all(axis=1) & (inside <= parts).all(axis=1) & (inside.sum(axis=1) > 0)
    cut = np.flatnonzero(alone & fits & (np.r_[bounds[0], end] < bounds[1:]))
    left = np.where(np.isin(np.arange(len(parts)), cut)[:, None], parts - inside, parts)
    return _Stretches(np.insert(bounds, cut + 1, end[cut - 1]), np.insert(left, cut, inside[cut], axis=0))


def _merged(whole: _Stretches, most: int) -> _Stretches:
    first = _groups(whole.bounds[:-1], np.diff(whole.bounds), most)
    if not len(first):
        return whole
    return _Stretches(
        whole.bounds[np.r_[first, len(whole.parts)]], np.add.reduceat(whole.parts, first, axis=0)
    )


@dataclass(frozen=True, eq=False)
class _Collectives:
    """span_ns: shape (n, 2). sums_ns: waiting, transfer and the others' waiting, shape (n, 3)."""

    span_ns: Int64
    sums_ns: Int64
    count: Int64
    kind: Int64


def _collectives(span: Int64, sums: Int64, kind: Int64, most: int) -> _Collectives:
    """Merge short collectives that follow one another. kind: number of each."""
    first = _groups(span[:, 0], span[:, 1] - span[:, 0], most)
    if not len(first):
        return _Collectives(span, sums, kind, kind)
    count = np.diff(np.r_[first, len(span)])
    end = np.maximum.reduceat(span[:, 1], first)
    return _Collectives(
        span_ns=np.stack([span[first, 0], end], axis=1),
        sums_ns=np.add.reduceat(sums, first, axis=0),
        count=count,
        kind=np.where(count == 1, kind[first], SEVERAL),
    )


def _groups(start: Int64, length: Int64, most: int) -> Int64:
    """Return the first index of each group of neighbors, at most `most` groups. Long ones are alone."""
    rows = len(start)
    if rows <= most:
        return np.arange(rows)
    # The shortest time that may be alone: longer times give fewer groups, but for what long ones cut off.
    low, high = 0, max(1, int(start[-1]) + int(length[-1]) - int(start[0]))
    best = np.arange(most) * rows // most
    while high - low > max(1, high >> _PRECISION):
        least = (low + high) // 2
        long = length >= least
        new = np.ones(len(start), np.bool_)
        new[1:] = long[1:] | long[:-1] | (np.diff((start - start[0]) // least) != 0)
        first = np.flatnonzero(new)
        if len(first) <= most:
            best, high = first, least
        else:
            low = least
    return best
