"""The model tested on what it has not seen.

The replay gives all work its own measured delay, so it reproduces any recording, even one whose delays are
random. That shows nothing. Here the model has a few figures only: latencies by launch call, turnarounds,
hand-overs between streams. They are medians over every other part of the recording (a step, or a tenth of the
step window), and predict when work starts in the parts between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, marked, median
from tb_gpudiag.facts.core.intervals import Intervals, distinct, subtract, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.replay.model import HANDSHAKE_NS, NOISE_NS, Calls, Streams, waits_for_its_own
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.api_calls import DEVICE_WAIT, EVENT_WAIT, STREAM_WAIT

# Fewer values have no usual one.
FEWEST = 3

# A call that takes this many times the median call does more than launch (it loads a module, for example, or
# uploads a graph), and starts its work when it is about to return.
LONG_CALL = 3

_NEVER = np.iinfo(np.int64).min // 4


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The recording as the figures of its other half predict it.

    streams: the work with those figures instead of its own delays. Work without a launch in the trace keeps
    its own: nothing says when it should have started.
    off: mask of the work that started at another time than predicted, shape (g,).
    unexplained: time for which work, the host or another rank waited and nothing in the model explains it, or
    for which work ran that should have waited.
    """

    streams: Streams
    off: Bool
    unexplained: Intervals


def hold_out(work: Work, communication: Bool, calls: Calls, streams: Streams, part: Int64) -> HeldOut:
    """Fit the figures to the even parts and predict the odd ones, and the other way round.

    communication: mask of communication kernels, shape (n,). part: number of the part in which each work was
    launched, shape (g,); NONE outside the step window.
    """
    events = work.events
    start, end = work.start_ns, work.end_ns
    previous, call, other = streams.order.previous, streams.call, streams.other
    since_previous = np.where(previous == NONE, 0, start - end[previous])
    since_other = np.where(other == NONE, 0, start - end[other])
    late = _late_in_call(events, calls, call)
    issued = np.where(late, calls.end_ns[call], calls.start_ns[call])
    inside = np.where(late, 0, calls.end_ns[call] - calls.start_ns[call])

    followed = (previous != NONE) & (np.abs(since_previous) <= HANDSHAKE_NS)
    pulled = other != NONE
    soon = work.turnaround_ns
    launched = ~followed & ~pulled & (start - issued <= inside + soon) & (start >= issued - soon)
    by_name = events.name[calls.event[call]].astype(np.int64) * 2 + late
    same_call = (previous != NONE) & (call == call[previous])
    by_kind = events.category[work.event].astype(np.int64) * 2 + same_call
    half, of_any = part % 2, np.zeros_like(call)
    nothing, own = np.zeros_like(start), np.where(followed, since_previous, 0)
    latency = _of_other_half(
        start - issued, launched, half, (by_name, late.astype(np.int64), of_any), nothing
    )
    turnaround = _of_other_half(since_previous, followed, half, (by_kind, same_call.astype(np.int64)), own)
    handshake = _of_other_half(since_other, pulled, half, (by_kind, of_any), nothing)
    linked = work.linked
    predicted = replace(
        streams,
        latency_ns=np.where(linked, latency, streams.latency_ns),
        from_return=np.where(linked, late, streams.from_return),
        turnaround_ns=np.where(linked & (previous != NONE), turnaround, streams.turnaround_ns),
        handshake_ns=np.where(linked & pulled, handshake, streams.handshake_ns),
    )
    expected = np.maximum(
        issued + latency,
        np.maximum(
            np.where(previous == NONE, _NEVER, end[previous] + turnaround),
            np.where(pulled, end[other] + handshake, _NEVER),
        ),
    )
    off = (part != NONE) & linked & (np.abs(start - expected) > soon)
    waits = _waits_too_long(events, calls, soon)
    ranks = _waits_for_other_ranks(work, communication, streams, part)
    unexplained = union(
        np.r_[np.minimum(start, expected)[off], calls.inside_from_ns[waits], ranks.start],
        np.r_[np.maximum(start, expected)[off], calls.end_ns[waits], ranks.end],
    )
    return HeldOut(predicted, off, unexplained)


def _late_in_call(events: Events, calls: Calls, call: Int64) -> Bool:
    """Mask of the work whose call did more than launch it, and started it at its end, shape (g,).

    A call that returns when its own work has ended took long because of that.
    """
    launches = distinct(call)
    name, duration = events.name[calls.event[launches]], (calls.end_ns - calls.start_ns)[launches]
    usual = np.full(len(launches), median(duration))
    for one in np.unique(name).tolist():
        same = name == one
        if np.count_nonzero(same) >= FEWEST:
            usual[same] = np.median(duration[same])
    long = (duration > LONG_CALL * usual) & ~waits_for_its_own(calls, call)[launches]
    return long[np.searchsorted(launches, call)]


def _of_other_half(value: Int64, usable: Bool, half: Int64, keys: Sequence[Int64], otherwise: Int64) -> Int64:
    """Return the median of the other half's usable values with the same key, shape of `value`.

    keys: from fine to coarse. Where even the coarsest has too few values, `otherwise`.
    """
    found: Int64 = otherwise.copy()
    known = np.zeros(len(value), np.bool_)
    for key in keys:
        for own in (0, 1):
            unknown = ~known & (half == own)
            for one in np.unique(key[unknown]).tolist():
                fitted = value[usable & (half != own) & (key == one)]
                if len(fitted) >= FEWEST:
                    found[unknown & (key == one)] = int(np.median(fitted))
                    known |= unknown & (key == one)
    return found


def _waits_too_long(events: Events, calls: Calls, turnaround_ns: int) -> Bool:
    """Mask of the synchronizations that went on waiting after the work that they waited for had ended,
    shape (c,)."""
    synchronizes = match(events, DEVICE_WAIT) | match(events, EVENT_WAIT) | match(events, STREAM_WAIT)
    return marked(synchronizes, calls.event) & (calls.inside_ns > turnaround_ns + NOISE_NS)


def _waits_for_other_ranks(work: Work, communication: Bool, streams: Streams, part: Int64) -> Intervals:
    """Find the exposed time by which collectives took longer than their shortest counterparts in the other
    half.

    A collective ends when the last rank has joined, and a trace of one rank does not show the others. Where
    parts have different numbers of collectives, nothing shows how long one takes without a wait.
    """
    kernel = communication[work.event]
    start, end = work.start_ns, work.end_ns
    own = np.flatnonzero(kernel & (part != NONE))
    own = own[np.lexsort((streams.call[own], part[own]))]
    length = end[own] - start[own]
    parts, counts = np.unique(part[own], return_counts=True)
    if len(parts) > 1 and (parts == np.arange(len(parts))).all() and (counts == counts[0]).all():
        table = length.reshape(len(parts), -1)
        shortest = np.stack([table[1::2].min(axis=0), table[::2].min(axis=0)])
        length = np.maximum(table - shortest[parts % 2], 0).reshape(-1)
    return subtract(union(end[own] - length, end[own]), union(start[~kernel], end[~kernel]))
