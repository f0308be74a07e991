"""Why a collective is exposed: what held its start, what outlasted what, and whom it waited for."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, UInt8, marked, summed
from tb_gpudiag.facts.core.causes import Cause, CauseSpans
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, coverage, expand, overlapping, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import Busy
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.kernels.collectives import CollectiveCalls
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import levels, marks, operators
from tb_gpudiag.vocabulary.collective_kinds import (
    FSDP,
    FSDP_REDUCES,
    FUNCTIONAL,
    GRADIENTS,
    NEEDED_NOW,
    PREFETCHED,
    RATE_LIMITER,
)
from tb_gpudiag.vocabulary.recorded import Category

# The larger part of the exposed time decides.
_MOST: Final = levels.HALF

# On a CPU, a rank's own thread calls, and waits. What it computes for less than this share of a collective is
# what a call and the wait for it cost.
_AT_ONCE: Final = levels.SIZEABLE


class ExposureReason(IntEnum):
    """Why nothing computed while a collective ran. The first one that the trace shows."""

    HIDDEN = 0  # something computed all the time
    OTHER_RANK = 1  # it took longer than equal ones: another rank arrived later
    SAME_STREAM = 2  # it ran on the stream that computes
    HOST_BEHIND = 3  # the host launched what computes next only after the collective had ended
    SYNCHRONIZED = 4  # so it did, because it waited for the collective
    RATE_LIMITED = 5  # FSDP's rate limiter held the host before the launch
    NOT_PREFETCHED = 6  # FSDP launched it for the unit that ran next
    LATE_LAUNCH = 7  # the host launched it when the computing before it was over
    BEHIND_COLLECTIVE = 8  # it was queued behind another collective
    LAST_BUCKET = 9  # gradients of the last bucket: nothing is left to compute
    NEEDED_AT_ONCE = 10  # a layer needs its result, and computed what it sends just before
    AFTER_COMPUTING = 11  # it could begin only when what computed before it had ended
    TOO_LONG = 12  # it began beside computing, and outlasted it
    WAITED_FOR = 13  # the host called it and waited for it at once (on a CPU)
    UNKNOWN = 14  # the trace does not show it
    REDUCED_AGAIN = 15  # for a micro-batch, and again for a later one before the optimizer steps


@dataclass(frozen=True, eq=False)
class SeenCollectives:
    """What is known of collectives without their reason. Shape (c,) each, in the order of `calls`.

    launch: the host's call that launched the kernel, or the operation on the CPU, or NONE.
    exposed_ns: while nothing computed.
    longer_ns: by how much each took longer than equal ones, or NONE: see exposure.longer_ns.
    annotation, caller: as in CollectiveLaunches.
    unit: FSDP's unit or the nearest module around, "" for none.
    number, of: the place among the collectives of its step with the same kind and caller, from 1, and how
    many these are.
    """

    calls: CollectiveCalls
    launch: Int64
    exposed_ns: Int64
    longer_ns: Int64
    annotation: list[str]
    caller: list[str]
    unit: list[str]
    number: Int64
    of: Int64

    def called_by(self, caller: str) -> Bool:
        return np.array([one == caller for one in self.caller], np.bool_)

    def of_kind(self, kind: str) -> Bool:
        return np.array([one == kind for one in self.calls.kind], np.bool_)

    @property
    def is_last(self) -> Bool:
        """Mask of the last ones of their steps."""
        return self.number == self.of


def why_on_cpu(host: Host, seen: SeenCollectives) -> UInt8:
    """Find the reasons in a job on the CPU."""
    length = seen.calls.end_ns - seen.calls.start_ns
    at_once = length - seen.exposed_ns < _AT_ONCE * length
    gradients = seen.called_by(GRADIENTS)
    return _first(
        (seen.exposed_ns <= 0, ExposureReason.HIDDEN),
        (_sent_again(host, seen), ExposureReason.REDUCED_AGAIN),
        (_waits_for_rank(seen), ExposureReason.OTHER_RANK),
        (gradients & seen.is_last, ExposureReason.LAST_BUCKET),
        (~at_once, ExposureReason.TOO_LONG),
        (_not_prefetched(host, seen), ExposureReason.NOT_PREFETCHED),
        (seen.called_by(FUNCTIONAL), ExposureReason.NEEDED_AT_ONCE),
        (~gradients, ExposureReason.WAITED_FOR),
    )


def why_on_device(
    host: Host, seen: SeenCollectives, busy: Busy, work: Work, exposed: Intervals, spans: CauseSpans
) -> tuple[UInt8, Int64]:
    """Find the reasons on a device, and what the host did before late launches, as events or NONE.

    exposed: when collectives ran and nothing computed. spans: what the main thread did."""
    calls = seen.calls
    mine = np.searchsorted(work.event, calls.event)
    computing = _Computing(busy, work)
    linked = work.linked[mine]
    lead_ns = calls.start_ns - work.launch_end_ns[mine]
    near_ns = work.turnaround_ns
    by_host = linked & (lead_ns <= near_ns)
    queued = linked & ~by_host
    ended_ns = np.maximum.accumulate(np.r_[np.iinfo(np.int64).min // 2, calls.end_ns])[: len(calls)]
    behind = (calls.start_ns >= ended_ns) & (calls.start_ns - ended_ns <= near_ns)
    beside = computing.runs_at(calls.start_ns)
    hidden_ns = calls.end_ns - calls.start_ns - seen.exposed_ns
    mostly_hidden = hidden_ns >= _MOST * (calls.end_ns - calls.start_ns)
    after = queued & ~beside & (calls.start_ns - computing.ended_before(calls.start_ns) <= near_ns)
    late, synchronized = _host_behind(calls, computing, exposed, spans)
    why = _first(
        (seen.exposed_ns <= 0, ExposureReason.HIDDEN),
        (_sent_again(host, seen), ExposureReason.REDUCED_AGAIN),
        (_waits_for_rank(seen), ExposureReason.OTHER_RANK),
        (work.stream_key[mine] == computing.main_stream, ExposureReason.SAME_STREAM),
        (synchronized, ExposureReason.SYNCHRONIZED),
        (late, ExposureReason.HOST_BEHIND),
        (beside & mostly_hidden, ExposureReason.TOO_LONG),
        (by_host & ~beside & _rate_limited(host, seen), ExposureReason.RATE_LIMITED),
        (by_host & _not_prefetched(host, seen), ExposureReason.NOT_PREFETCHED),
        # Where the usual time of such a message is not known, it may just as well have waited for a rank.
        (by_host & ~beside & (seen.longer_ns != NONE), ExposureReason.LATE_LAUNCH),
        (beside, ExposureReason.TOO_LONG),
        (queued & behind, ExposureReason.BEHIND_COLLECTIVE),
        (after & seen.called_by(GRADIENTS) & seen.is_last, ExposureReason.LAST_BUCKET),
        (after & seen.called_by(FUNCTIONAL), ExposureReason.NEEDED_AT_ONCE),
        (after, ExposureReason.AFTER_COMPUTING),
    )
    return why, _before_launch(why, work.launch_start_ns[mine], spans, busy.all)


def _first(*rows: tuple[Bool, ExposureReason]) -> UInt8:
    """Return the reason of the first mask that holds, shape of the masks; UNKNOWN for none."""
    found = np.full(len(rows[0][0]), ExposureReason.UNKNOWN, np.uint8)
    for mask, why in reversed(rows):
        found[mask] = why
    return found


def _waits_for_rank(seen: SeenCollectives) -> Bool:
    waiting = np.minimum(seen.longer_ns, seen.exposed_ns)
    return (waiting > 0) & (waiting >= _MOST * seen.exposed_ns)


def _sent_again(host: Host, seen: SeenCollectives) -> Bool:
    """Mask of what is sent for several micro-batches before the optimizer steps: gradients, if a later
    backward pass adds to the same ones and reduces as many bytes, and the weights that FSDP gathers again
    after that, although nothing has changed them."""
    events, launched = host.events, seen.launch != NONE
    reduced = seen.called_by(GRADIENTS) & seen.of_kind("all_reduce")
    reduced |= seen.called_by(FSDP) & seen.of_kind("reduce_scatter")
    reduced &= launched
    gathered = seen.called_by(FSDP) & seen.of_kind("all_gather") & launched
    forward = np.sort(events.start_ns[_passes(host)])
    optimizer = np.sort(events.start_ns[match(events, marks.OPTIMIZER_STEP)])
    at_ns = np.where(launched, events.start_ns[seen.launch], 0)
    micro_batch = np.searchsorted(forward, at_ns, side="right")
    step = np.searchsorted(optimizer, at_ns)
    last = np.zeros(len(optimizer) + 1, np.int64)
    np.maximum.at(last, step[reduced], micro_batch[reduced])
    final = last[step]
    sent = np.bincount(micro_batch[reduced], seen.calls.bytes[reduced], len(forward) + 1)
    adds = (
        np.bincount(np.searchsorted(forward, _added_ns(host), side="right"), minlength=len(forward) + 1) > 0
    )
    again = reduced & (step < len(optimizer)) & (micro_batch < final)
    again &= (sent[micro_batch] == sent[final]) & adds[final]
    first = np.full(len(optimizer) + 1, len(forward) + 1)
    np.minimum.at(first, step[again], micro_batch[again])
    return again | (gathered & (micro_batch > first[step]) & (micro_batch <= final))


def _passes(host: Host) -> Bool:
    """Mask of the marks of whole forward passes. Each unit of FSDP1 has one, and in a backward pass again if
    it is computed again there."""
    found = match(host.events, marks.PARALLEL_FORWARD)
    around = host.tree.under(found | match(host.events, operators.BACKWARD_NODE))
    return found & ~marked(around, host.tree.parent)


def _added_ns(host: Host) -> Int64:
    """When gradients were added to those of an earlier backward pass: by autograd's node, or by FSDP, whose
    frames of Python may be in between."""
    inside = marked(match(host.events, operators.ACCUMULATES), host.tree.parent)
    inside |= host.tree.under(match(host.events, FSDP_REDUCES))
    return host.events.start_ns[inside & match(host.events, operators.ADDS)]


def _not_prefetched(host: Host, seen: SeenCollectives) -> Bool:
    """Mask of FSDP's all-gathers that it launched for the unit that runs next."""
    own = np.full(len(host.events), NONE, np.int32)
    own[match(host.events, NEEDED_NOW)] = 1
    own[match(host.events, PREFETCHED)] = 0
    around = host.tree.nearest(own)
    needed = np.where(seen.launch == NONE, NONE, around[seen.launch]) == 1
    return seen.called_by(FSDP) & seen.of_kind("all_gather") & needed


def _rate_limited(host: Host, seen: SeenCollectives) -> Bool:
    """Mask of the collectives before whose launch the rate limiter held the host most of the time since the
    launch of the collective before it on the same thread."""
    events = host.events
    waits = np.flatnonzero(match(events, RATE_LIMITER) & (events.category == Category.USER_ANNOTATION))
    found = np.zeros(len(seen.calls), np.bool_)
    known = np.flatnonzero(seen.launch != NONE)
    known = known[np.lexsort((events.start_ns[seen.launch[known]], events.thread[seen.launch[known]]))]
    at, thread = events.start_ns[seen.launch[known]], events.thread[seen.launch[known]]
    since = np.where(np.diff(thread, prepend=-1) == 0, np.r_[at[:1], at[:-1]], at)
    held = coverage(union(events.start_ns[waits], events.end_ns[waits]), since, at)
    found[known] = (held > 0) & (held >= _MOST * (at - since))
    return found


def _host_behind(
    calls: CollectiveCalls, computing: _Computing, exposed: Intervals, spans: CauseSpans
) -> tuple[Bool, Bool]:
    """Masks of the collectives during whose longest exposed stretch nothing was queued that computes, and of
    those of them at whose end the host was waiting."""
    owner, inner = expand(*overlapping(exposed, calls.start_ns, calls.end_ns))
    start = np.maximum(exposed.start[inner], calls.start_ns[owner])
    end = np.minimum(exposed.end[inner], calls.end_ns[owner])
    order = np.lexsort((start - end, owner))
    longest = order[np.diff(owner[order], prepend=-1) != 0]
    since, until = calls.start_ns.copy(), calls.end_ns.copy()
    since[owner[longest]], until[owner[longest]] = start[longest], end[longest]
    launched = computing.next_launch_ns(until)
    late = launched >= np.where(until < calls.end_ns, since, until)
    late &= launched != computing.NOTHING
    at = np.maximum(np.searchsorted(spans.start_ns, until, side="right") - 1, 0)
    waits = np.zeros(len(calls), np.bool_)
    if len(spans.start_ns):
        waiting = np.isin(spans.cause[at], np.array((Cause.SYNC, Cause.COLLECTIVE), np.uint8))
        waits = waiting & (spans.start_ns[at] <= until) & (until < spans.end_ns[at])
    return late, late & waits


def _before_launch(why: UInt8, launched_ns: Int64, spans: CauseSpans, busy: Intervals) -> Int64:
    """What the main thread did before late launches while the GPU was idle: the event of the longest stretch
    since the launch of the collective before, or NONE.

    launched_ns: NONE without a launch. spans: what the main thread did."""
    found = np.full(len(why), NONE, np.int64)
    late = np.flatnonzero(
        np.isin(why, np.array((ExposureReason.LATE_LAUNCH, ExposureReason.RATE_LIMITED), np.uint8))
    )
    launches = np.sort(launched_ns[launched_ns != NONE])
    before = np.searchsorted(launches, launched_ns[late], side="left") - 1
    since = np.where(before >= 0, launches[np.maximum(before, 0)], 0)
    first, last = (np.searchsorted(spans.start_ns, at, side="left") for at in (since, launched_ns[late]))
    owner, inner = expand(first, np.maximum(last, first))
    start, end = spans.start_ns[inner], np.minimum(spans.end_ns[inner], launched_ns[late][owner])
    idle = end - start - coverage(busy, start, end)
    order = np.lexsort((-idle, owner))
    longest = order[np.diff(owner[order], prepend=-1) != 0]
    longest = longest[idle[longest] > 0]
    found[late[owner[longest]]] = spans.event[inner[longest]]
    return found


class _Computing:
    """Kernels of a device that compute, in order of start."""

    NOTHING: Final = np.iinfo(np.int64).max

    def __init__(self, busy: Busy, work: Work) -> None:
        events = work.events
        own = np.searchsorted(work.event, busy.work)
        own = own[~busy.communication[busy.work] & (events.category[busy.work] != Category.MEMCPY)]
        self._start, self._launch = work.start_ns[own], work.launch_start_ns[own]
        self._ends = np.sort(work.end_ns[own], kind="stable")
        self._set = busy.computing
        streams, member = np.unique(work.stream_key[own], return_inverse=True)
        spent = summed(member, work.end_ns[own] - work.start_ns[own], len(streams))
        self.main_stream = int(streams[spent.argmax()]) if len(streams) else NONE

    def runs_at(self, time_ns: Int64) -> Bool:
        return coverage(self._set, time_ns, time_ns + 1) > 0

    def ended_before(self, time_ns: Int64) -> Int64:
        """Return the last end up to each time; a very early time for none."""
        at = np.searchsorted(self._ends, time_ns, side="right") - 1
        early = np.iinfo(np.int64).min // 2
        return (
            np.where(at >= 0, self._ends[np.maximum(at, 0)], early)
            if len(self._ends)
            else time_ns * 0 + early
        )

    def next_launch_ns(self, time_ns: Int64) -> Int64:
        """Return when the next kernel from each time on was launched; NONE where the trace has no launch, and
        NOTHING if no kernel follows."""
        at = np.searchsorted(self._start, time_ns, side="left")
        launch = np.r_[self._launch, self.NOTHING]
        return launch[at]
