"""The replay's model: the host's calls as one line, the GPU's work by stream, and what waited for what."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.intervals import distinct, numbered, places_of_each, running_maximum
from tb_gpudiag.facts.core.launches import QUEUE_LIMIT, TURNAROUND_NS, Work
from tb_gpudiag.facts.core.matching import match, match_some
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.api_calls import EVENT_RECORD, EVENT_WAIT
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES

# Work that began this soon after other work ended, and later than its launch explains, waited for that work.
# Turnarounds on a stream take 1-3 us, waits across streams 2-10 us.
HANDSHAKE_NS = 10_000

# With timestamps cut to microseconds, an end and the start that it causes may seem to be up to 2 us in the
# wrong order.
NOISE_NS = 2_000

# A wait for an event that has happened returns this soon; one that waited also takes the time to wake up.
AT_ONCE_NS = 5_000

# Latency of an idle GPU, from the launch's beginning to the work's start: a low quantile of the measured
# ones.
LATENCY_QUANTILE = 0.1


@dataclass(frozen=True, eq=False)
class Calls:
    """The host's launches, waits and step marks in order of time. Shape (c,) each.

    Before a call the host spends between_ns, which is negative where another thread's call overlaps. The call
    waits until the work of its `target` has ended, if it has one, and then takes inside_ns.
    """

    event: Int64  # NONE for a step mark
    start_ns: Int64
    end_ns: Int64
    free_from_ns: Int64  # the end of the call before, at most start_ns
    inside_from_ns: Int64  # when it stopped waiting
    between_ns: Int64
    inside_ns: Int64
    target: Int64  # the work that it waited for, or NONE
    full_queue_target: Int64  # the work that must end before the queue has room, or NONE
    full_queue_call: Int64  # the call that launched it, or NONE


@dataclass(frozen=True, eq=False)
class Succession:
    """How work follows other work on the same stream. Shape (g,) each."""

    previous: Int64  # the work before each one on its stream, or NONE
    work: Int64  # all work, sorted by the calls by which it and all before it on its stream are launched
    launched: Int64  # those calls, in this order


@dataclass(frozen=True, eq=False)
class Streams:
    """The GPU's work in order of start. Shape (g,) each.

    It starts at the latest of three times: latency_ns after its call began (after it returned, where
    from_return), turnaround_ns after the previous work on its stream ended, and handshake_ns after `other`
    ended.
    """

    call: Int64
    duration_ns: Int64
    latency_ns: Int64
    from_return: Bool
    turnaround_ns: Int64
    other: Int64
    handshake_ns: Int64
    stream: Int64  # its number, from 0
    order: Succession


def calls_of(work: Work, blocking: Int64, full_queue: Int64, marks: Int64) -> Calls:
    """Build the line of calls, with what each call waited for.

    blocking, full_queue: as for replay.Replay. marks: times of step starts, and the end of the last step.
    """
    events = work.events
    launches = distinct(work.launch[work.linked])
    event = np.union1d(launches, blocking)
    event = np.r_[np.full(len(marks), NONE, np.int64), event]
    start = np.where(event == NONE, 0, events.start_ns[event])
    end = np.where(event == NONE, 0, events.end_ns[event])
    start[: len(marks)] = end[: len(marks)] = marks
    order = np.argsort(start, kind="stable")
    event, start, end = event[order], start[order], end[order]
    before = np.r_[start[:1], end[:-1]]
    target = _last_ended(work, end, np.isin(event, blocking) | np.isin(event, full_queue))
    target = _recorded(work, event, start, end, target)
    waited_until = np.where(target == NONE, start, np.r_[work.end_ns, 0][target])
    inside_from = np.clip(waited_until, start, end)
    limit_work, limit_call = _full_queue(work, event, end)
    return Calls(
        event,
        start,
        end,
        np.minimum(before, start),
        inside_from,
        start - before,
        end - inside_from,
        target,
        limit_work,
        limit_call,
    )


def _last_ended(work: Work, time: Int64, chosen: Bool) -> Int64:
    """Find the work that had ended last by each chosen time; NONE elsewhere."""
    found = np.full(len(time), NONE, np.int64)
    by_end = np.argsort(work.end_ns, kind="stable")
    ended = np.searchsorted(work.end_ns[by_end], time[chosen] + NOISE_NS, side="right")
    found[chosen] = np.r_[NONE, by_end][ended]
    return found


def _recorded(work: Work, event: Int64, start: Int64, end: Int64, target: Int64) -> Int64:
    """Correct the targets of waits for events that had happened already, whose end does not show what they
    were for: the target is the last work launched before the thread recorded an event. Without one, the
    target remains."""
    events = work.events
    is_call = event != NONE
    waits = is_call & (target != NONE)
    waits[is_call] &= match_some(events, EVENT_WAIT, event[is_call])
    waits[waits] = (work.end_ns[target[waits]] <= start[waits]) | (end[waits] - start[waits] <= AT_ONCE_NS)
    records = np.flatnonzero(match(events, EVENT_RECORD) & events.among(*CALL_CATEGORIES))
    linked = work.by_launch
    found: Int64 = target.copy()
    waiting = np.flatnonzero(waits)
    of_thread = dict(places_of_each(events.thread[records]))
    for thread, places in places_of_each(events.thread[event[waiting]]):
        own = waiting[places]
        times = np.sort(events.start_ns[records[of_thread.get(thread, records[:0])]])
        at = np.searchsorted(times, start[own], side="right") - 1
        own, recorded = own[at >= 0], times[at[at >= 0]]
        last = np.searchsorted(work.launch_start_ns[linked], recorded, side="right") - 1
        own, about = own[last >= 0], linked[last[last >= 0]]
        # Work that had not ended when the wait was over was not its target.
        ended = work.end_ns[about] <= start[own] + NOISE_NS
        found[own[ended]] = about[ended]
    return found


def _full_queue(work: Work, event: Int64, end: Int64) -> tuple[Int64, Int64]:
    """Find, for each launch, the last work of the launch QUEUE_LIMIT before it, and that launch's place in
    the line."""
    target, call = np.full(len(event), NONE, np.int64), np.full(len(event), NONE, np.int64)
    linked = np.flatnonzero(work.linked)
    last = np.full(len(work.events), NONE, np.int64)
    last[work.launch[linked]] = linked  # in order of start: the last one stays
    place = np.flatnonzero(event != NONE)
    place = place[last[event[place]] != NONE]
    if len(place) <= QUEUE_LIMIT:
        return target, call
    late, early = place[QUEUE_LIMIT:], place[:-QUEUE_LIMIT]
    needed = last[event[early]]
    # Where that work had not ended, the queue was longer.
    held = work.end_ns[needed] <= end[late] + NOISE_NS
    target[late[held]], call[late[held]] = needed[held], early[held]
    return target, call


def streams_of(work: Work, calls: Calls) -> Streams:
    """Group the work by stream, with what each kernel or copy was seen to wait for."""
    start, end = work.start_ns, work.end_ns
    call = _call_of(work, calls, start)
    delay = start - calls.start_ns[call]
    number = numbered(work.stream_key)[1]
    order = order_of(call, number)
    previous = order.previous
    turnaround = np.where(previous == NONE, 0, start - end[previous])
    has_previous = previous != NONE
    # How long after the call a graph's later nodes start says nothing about launching.
    later_node = work.in_graph & (start > work.graph_begun_ns[work.launch])
    idle_before = (~has_previous | (turnaround > HANDSHAKE_NS)) & ~later_node
    usual_latency = _low(delay[idle_before])
    by_launch = (delay <= 2 * usual_latency) & ~later_node
    by_stream = ~by_launch & has_previous & (turnaround <= HANDSHAKE_NS)
    usual_turnaround = _low(turnaround[by_stream & (turnaround >= 0)])
    other = np.where(by_launch | by_stream, NONE, _handed_over(start, end, number, later_node))
    # Unexplained delays remain as they were, relative to the launch.
    unexplained = ~by_launch & ~by_stream & (other == NONE)
    own = by_launch | unexplained
    # A long launch call (one that loads a module, for example) starts its work when it is about to return.
    since_return = start - calls.end_ns[call]
    from_return = own & (np.abs(since_return) < delay) & ~waits_for_its_own(calls, call)[call]
    latency = np.where(own, delay, np.minimum(delay, usual_latency))
    latency[from_return] = since_return[from_return]
    turnaround = np.where(by_stream, turnaround, np.minimum(turnaround, usual_turnaround))
    handshake = np.where(other == NONE, 0, start - end[other])
    return Streams(call, end - start, latency, from_return, turnaround, other, handshake, number, order)


def _low(latencies: Int64) -> int:
    """A low one of these; 0 without any."""
    return int(np.quantile(latencies, LATENCY_QUANTILE)) if len(latencies) else 0


def order_of(call: Int64, number: Int64) -> Succession:
    """Find how work follows. call, number: that launched each work, and of its stream, shape (g,)."""
    by_stream = np.argsort(number, kind="stable")
    same = np.flatnonzero(number[by_stream][1:] == number[by_stream][:-1])
    previous, launched = np.full(len(number), NONE, np.int64), np.zeros_like(call)
    previous[by_stream[same + 1]] = by_stream[same]
    launched[by_stream] = running_maximum(call[by_stream], number[by_stream])
    work = np.argsort(launched, kind="stable")
    return Succession(previous, work, launched[work])


def _call_of(work: Work, calls: Calls, start: Int64) -> Int64:
    """Return the place in the line of each work's launch; without one, of the last call before the work
    began."""
    found = np.maximum(np.searchsorted(calls.start_ns, start, side="right") - 1, 0)
    by_event = np.argsort(calls.event, kind="stable")
    linked = work.linked
    found[linked] = by_event[np.searchsorted(calls.event[by_event], work.launch[linked])]
    return found.astype(np.int64)


def waits_for_its_own(calls: Calls, call_of_work: Int64) -> Bool:
    """Mask of the calls that return when their own work has ended, shape (c,)."""
    found: Bool = calls.target != NONE
    found[found] = call_of_work[calls.target[found]] == np.flatnonzero(found)
    return found


def _handed_over(start: Int64, end: Int64, number: Int64, later_node: Bool) -> Int64:
    """Find, for each work, the one on another stream that had just ended when it began, or NONE. A graph's
    later nodes may take longer: they wait for nothing else."""
    longest = np.where(later_node, TURNAROUND_NS, HANDSHAKE_NS)
    by_end = np.argsort(end, kind="stable")
    at = np.searchsorted(end[by_end], start + NOISE_NS, side="right") - 1
    found = np.full(len(start), NONE, np.int64)
    for back in range(4):  # of the last few to end, one is on another stream, or nothing was handed over
        index = by_end[np.maximum(at - back, 0)]
        fits = (found == NONE) & (at >= back) & (number[index] != number) & (start - end[index] <= longest)
        fits &= index < np.arange(len(start))
        found[fits] = index[fits]
    return found
