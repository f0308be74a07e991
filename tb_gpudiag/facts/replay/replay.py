"""The replay: the trace run again as host calls, launches and streams, to estimate what a change saves.

The host is one line of calls in order of time, over all launching threads, with the host time between them.
Work starts no earlier than its launch latency allows, than the previous work on its stream ends, and than the
work of another stream ends that it was seen to wait for. A call that waited (for the device, for its own
copy, or because the launch queue was full) waits for the same work again. Latencies and turnarounds are the
measured ones, so the unchanged replay gives the measured times, whether or not the model holds. That is what
`error` tests: how well figures from one half of the recording predict the other half (see held_out.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Float64, Int64
from tb_gpudiag.facts.core.intervals import (
    EMPTY,
    Intervals,
    Window,
    clip,
    coverage,
    lengths_of_each,
    merged,
    union,
)
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.replay.held_out import HeldOut, hold_out
from tb_gpudiag.facts.replay.model import Calls, Streams, calls_of, streams_of
from tb_gpudiag.facts.replay.simulation import NEVER, simulate
from tb_gpudiag.frozen import dataclass

# Number of parts of a step window with fewer than two steps: half of the parts predict the others.
PARTS = 10


@dataclass(frozen=True, eq=False)
class Shorter:
    """GPU work that takes less time: event indices, and which share of each one's time vanishes. Shape (k,)
    each."""

    event: Int64
    share: Float64


NOTHING_SHORTER = Shorter(np.zeros(0, np.int64), np.zeros(0))


@dataclass(frozen=True)
class Beside:
    """Copies that run beside all other work: event indices, by direction. The GPU has an engine for each
    direction, so copies of one direction still take their time, one after another."""

    to_device: tuple[int, ...] = ()
    to_host: tuple[int, ...] = ()

    @property
    def both(self) -> tuple[int, ...]:
        return self.to_device + self.to_host


@dataclass(frozen=True, eq=False)
class Removal:
    """What to remove: host time, waits, idle time, and GPU work."""

    host: Intervals = EMPTY
    unblocked: tuple[int, ...] = ()  # event indices of calls that no longer wait
    dropped: tuple[int, ...] = ()  # event indices of launch calls whose work vanishes
    shorter: Shorter = NOTHING_SHORTER
    idle: Intervals = EMPTY  # of the GPU: the work that ends it follows the work before it at once
    beside: Beside = Beside()


@dataclass(frozen=True, eq=False)
class Replayed:
    """Times of one replay. step_ns: of each step, between its borders, shape (k,)."""

    step_ns: Int64

    @property
    def window_ns(self) -> int:
        return int(self.step_ns.sum())


class Replay:
    """One trace, ready to be replayed."""

    def __init__(
        self,
        work: Work,
        communication: Bool,
        blocking: Int64,
        full_queue: Int64,
        steps: Steps,
        borders_ns: Int64,
    ) -> None:
        """Build the model.

        communication: mask of communication kernels, shape (n,).
        blocking: event indices of the calls that wait for the GPU (handover.HostTime.blocking).
        full_queue: event indices of the calls that blocked on a full queue (queue_depth.full_queue).
        steps, borders_ns: of the step window, see steady.step_borders; without steps, the window as one.
        """
        self._measured_ns = borders_ns
        self._window = Window(int(borders_ns[0]), int(borders_ns[-1]))
        self._work = work
        self._communication = communication
        self._marks = np.r_[steps.start_ns, steps.end_ns[-1:]]
        self.calls: Calls = calls_of(work, blocking, full_queue, self._marks)
        self._streams: Streams = streams_of(work, self.calls)

    @property
    def measured(self) -> Replayed:
        """Times of the steps as they were recorded."""
        return Replayed(np.diff(self._measured_ns))

    @cached_property
    def unchanged(self) -> Replayed:
        return self.run()

    @property
    def error(self) -> float:
        """How far the model is off in parts of the recording that its figures were not fitted to: the larger
        of `part_error` and `unexplained_share`."""
        return max(self.part_error, self.unexplained_share)

    @cached_property
    def part_error(self) -> float:
        """Difference between the predicted and the recorded length of each part, added up, as a share of the
        step window."""
        begun, ends = simulate(
            self.calls, self._held_out.streams, self.calls.between_ns, self.calls.inside_ns, self.calls.target
        )
        predicted = self._progress(begun, ends)
        recorded = self._progress(self.calls.start_ns, self._work.end_ns)
        off_ns = np.abs(np.diff(predicted) - np.diff(recorded)).sum()
        return float(off_ns) / max(1, self._window.duration_ns)

    @cached_property
    def unexplained_share(self) -> float:
        """Share of the step window with waits that the model does not explain."""
        unexplained_ns = self._inside(*self._held_out.unexplained)
        return unexplained_ns / max(1, self._window.duration_ns)

    @cached_property
    def unexplained_starts(self) -> float:
        """Share of the work launched in the step window that started at another time than predicted."""
        held_out, part = self._held_out, self._part
        return float(held_out.off.sum()) / max(1, int((part != NONE).sum()))

    @cached_property
    def _borders(self) -> Int64:
        """Borders of the parts that predict each other: the steps, or equal parts of the window."""
        if len(self._marks) > 2:
            return np.r_[self._marks[:-1], self._window.end_ns]
        return np.linspace(self._window.start_ns, self._window.end_ns, PARTS + 1).astype(np.int64)

    @cached_property
    def _part(self) -> Int64:
        """Number of the part in which each work was launched, or NONE."""
        borders, launched = self._borders, self.calls.start_ns[self._streams.call]
        inside = (launched >= borders[0]) & (launched < borders[-1])
        return np.where(inside, np.searchsorted(borders[1:-1], launched, side="right"), NONE)

    @cached_property
    def _held_out(self) -> HeldOut:
        work, streams = self._work, self._streams
        return hold_out(work, self._communication, self.calls, streams, self._part)

    def _progress(self, begun: Int64, ends: Int64) -> Int64:
        """Return when host and GPU were done with what the recording launched before each border, shape
        (parts + 1,). begun: of each call; ends: of each work."""
        at = np.searchsorted(self.calls.start_ns, self._borders)
        on_host = begun[np.minimum(at, len(begun) - 1)]
        return np.r_[on_host[0], np.maximum(on_host, self._done(ends, at))[1:]]

    def _done(self, ends: Int64, at: Int64) -> Int64:
        """Return when the GPU had done what was launched before these places in the line of calls."""
        linked = np.flatnonzero(self._work.linked)
        by_call = linked[np.argsort(self._streams.call[linked], kind="stable")]
        done = np.r_[NEVER, np.maximum.accumulate(ends[by_call])]
        return done[np.searchsorted(self._streams.call[by_call], at)]

    def run(self, *changes: Removal, sooner: tuple[Int64, Int64] | None = None) -> Replayed:
        """Return the step times after these changes together.

        sooner: between_ns and inside_ns instead of those of `calls`.
        """
        calls = self.calls
        between, inside = between_ns, inside_ns = sooner or (calls.between_ns, calls.inside_ns)
        target = calls.target
        host = self._on_host(changes)
        if len(host):
            before = coverage(host, calls.free_from_ns, calls.start_ns)
            # A call that begins inside of the one before it: what goes away of both goes away once.
            before -= coverage(host, calls.start_ns, calls.start_ns - np.minimum(calls.between_ns, 0))
            within = coverage(host, calls.inside_from_ns, calls.end_ns)
            between_ns = _less(between, calls.between_ns, before)
            inside_ns = _less(inside, calls.inside_ns, within)
        unblocked = [event for change in changes for event in change.unblocked]
        if unblocked:
            target = np.where(np.isin(calls.event, np.array(unblocked)), NONE, target)
        streams = _without(self._streams, self._dropped(changes) | self._among(_beside(changes).both))
        if any(len(change.shorter.event) for change in changes):
            left_ns = np.minimum(streams.duration_ns, self._left_ns(changes))
            streams = replace(streams, duration_ns=left_ns)
        closed = merged(EMPTY, *(change.idle for change in changes)).end
        if len(closed):
            streams = _at_once(streams, np.isin(self._work.start_ns, closed))
        begun, ends = simulate(calls, streams, between_ns, inside_ns, target)
        marks = np.flatnonzero(calls.event == NONE)
        borders = np.maximum(begun[marks], self._done(ends, marks))
        # What the first step waited for was launched before it.
        borders[0] = self._window.start_ns
        borders[-1] = max(borders[-1], borders[0] + self.shortest_ns(*changes))
        return Replayed(np.diff(np.maximum.accumulate(borders)))

    def shortest_ns(self, *changes: Removal) -> int:
        """Return how long the work of the busiest stream still takes, or the copies beside it: no window is
        shorter, whatever else the changes remove."""
        start, gone = self._work.start_ns, self._dropped(changes) | self._among(_beside(changes).both)
        end = np.where(gone, start, np.minimum(start + self._left_ns(changes), self._window.end_ns))
        start = np.maximum(start, self._window.start_ns)
        busy_ns = lengths_of_each(start, end, self._streams.stream)
        return max(self._copying_beside_ns(changes), int(busy_ns.max(initial=0)))

    def _dropped(self, changes: Sequence[Removal]) -> Bool:
        """Mask of the work that vanishes, shape (g,)."""
        calls = [event for change in changes for event in change.dropped]
        return np.isin(self._work.launch, np.array(calls, np.int64)) & self._work.linked

    def _among(self, events: Sequence[int]) -> Bool:
        """Mask of the work with these events, shape (g,)."""
        return np.isin(self._work.event, np.array(events, np.int64))

    def _copying_beside_ns(self, changes: Sequence[Removal]) -> int:
        """Return how long the copies that run beside other work still take, of the slower direction."""
        beside = _beside(changes)
        if not beside.both:
            return 0
        dropped, start = self._dropped(changes), self._work.start_ns
        end = start + self._left_ns(changes)
        directions = [self._among(copies) & ~dropped for copies in (beside.to_device, beside.to_host)]
        return max(self._inside(start[some], end[some]) for some in directions)

    def _left_ns(self, changes: Sequence[Removal]) -> Int64:
        """Return how long each work still takes if several changes make it shorter, shape (g,)."""
        left = np.ones(len(self._work))
        for change in changes:
            place = np.searchsorted(self._work.event, change.shorter.event)
            np.multiply.at(left, place, 1 - change.shorter.share)
        duration_ns = self._work.end_ns - self._work.start_ns
        return np.where(left < 1, np.rint(left * duration_ns), duration_ns).astype(np.int64)

    def _on_host(self, changes: Sequence[Removal]) -> Intervals:
        """Return the host time of the steps that changes remove together, every instant once. Without that of
        earlier steps, which are not in the window, everything in it would only be sooner."""
        first_ns = min(int(self._marks[0]), self._window.start_ns)
        return clip(merged(EMPTY, *(change.host for change in changes)), first_ns, self._window.end_ns)

    def _inside(self, start: Int64, end: Int64) -> int:
        """Return how much of the window these stretches cover together."""
        return clip(union(start, end), self._window.start_ns, self._window.end_ns).total


def _less(host_ns: Int64, recorded_ns: Int64, removed_ns: Int64) -> Int64:
    """Return what is left of each host time without the same share of it as is removed of the recorded one;
    shape (c,) each."""
    part = np.where(recorded_ns > 0, host_ns / np.maximum(recorded_ns, 1), 1.0)
    return host_ns - np.rint(removed_ns * part).astype(np.int64)


def _without(streams: Streams, gone: Bool) -> Streams:
    """Return the streams without this work, a mask of shape (g,): it takes no time and waits for no other
    stream."""
    if not gone.any():
        return streams
    return replace(
        streams,
        duration_ns=np.where(gone, 0, streams.duration_ns),
        turnaround_ns=np.where(gone, 0, streams.turnaround_ns),
        other=np.where(gone, NONE, streams.other),
    )


def _at_once(streams: Streams, some: Bool) -> Streams:
    """Return the streams in which some of the work, a mask of shape (g,), starts as soon as the work before
    it has ended."""
    return replace(
        streams,
        turnaround_ns=np.where(some, 0, streams.turnaround_ns),
        handshake_ns=np.where(some, np.minimum(streams.handshake_ns, 0), streams.handshake_ns),
    )


def _beside(changes: Sequence[Removal]) -> Beside:
    """Return the copies of all changes together."""
    return Beside(
        tuple(event for change in changes for event in change.beside.to_device),
        tuple(event for change in changes for event in change.beside.to_host),
    )
