"""What the ledger's rules share: picking stretches of lost time, and saying where in the code they lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.handover import Pieces
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, complement, expand, overlapping, union
from tb_gpudiag.facts.core.places import by_place
from tb_gpudiag.facts.core.steps import Window
from tb_gpudiag.facts.facts import DeviceFacts
from tb_gpudiag.facts.replay.replay import Change
from tb_gpudiag.rules.rule import NOTHING_CLAIMED, Claimed, Place, Range, Removable
from tb_gpudiag.trace.events import NONE, Bool, Int64, UInt8

# A page shows a handful; what follows is a list nobody reads.
MOST_PLACES = 5
MOST_RANGES = 20

NO_DEVICE = -1
"""The device of stretches when no GPU was recorded: the main host thread's own time."""

ISSUING = (Cause.DISPATCH, Cause.LAUNCH, Cause.LATENCY)
"""Causes that are the price of a launch, from inside its operator to the kernel's start."""


IDLE = {
    Cause.INPUT: "data loading",
    Cause.COMPILE: "compilation",
    Cause.SYNC: "blocking calls",
    Cause.ALLOCATOR: "memory allocation",
    Cause.COLLECTIVE: "collective calls",
    Cause.PYTHON: "Python between operators",
    Cause.DISPATCH: "operators on the host",
    Cause.LAUNCH: "launch calls",
    Cause.LATENCY: "launch latency",
    Cause.QUEUED: "work queued, cause not visible",
    Cause.UNLINKED: "work without a recorded launch",
    Cause.PROFILER: "the profiler itself",
}
"""What a GPU that is idle waits for, in words."""


@dataclass(frozen=True)
class Lost:
    """Lost time in the step window: idle segments of the busiest device, or without a GPU the main thread's
    time.

    Shape (s,) each, in order of time, clipped to the window. gap_ns is the length of the gap that a segment
    is in.
    """

    device: int
    window_ns: int
    start_ns: Int64
    end_ns: Int64
    cause: UInt8
    event: Int64  # what the time is put down to, or NONE
    drained_ns: Int64
    gap: Int64
    gap_ns: Int64
    launch: Int64  # of the work that ended the gap, or NONE

    @property
    def length_ns(self) -> Int64:
        return self.end_ns - self.start_ns

    def of(self, *causes: Cause) -> Bool:
        """Shape (s,)."""
        return np.isin(self.cause, np.array(causes, np.uint8))

    def total_ns(self, chosen: Bool) -> int:
        return int(self.length_ns[chosen].sum())

    def share(self, nanoseconds: int) -> float:
        """Of the step window; 0 of an empty one."""
        return nanoseconds / self.window_ns if self.window_ns else 0.0

    def claims(self, chosen: Bool) -> dict[int, Intervals]:
        """The instants of the chosen segments. Host time is nobody else's: it claims nothing."""
        if self.device == NO_DEVICE:
            return {}
        return {self.device: self.stretches(chosen)}

    def stretches(self, chosen: Bool) -> Intervals:
        """The chosen segments, neighbours joined."""
        return union(self.start_ns[chosen], self.end_ns[chosen])

    def ranges(self, chosen: Bool) -> list[Range]:
        """The longest stretches, the longest first."""
        return longest(self.stretches(chosen), self.device)


def longest(stretches: Intervals, device: int) -> list[Range]:
    """Where a finding shows on the timeline."""
    order = np.argsort(stretches.start - stretches.end, kind="stable")[:MOST_RANGES]
    return [Range(int(stretches.start[i]), int(stretches.end[i]), device) for i in order]


def lost_time(
    window: Window, device: DeviceFacts | None, host_pieces: Pieces, claimed: Claimed = NOTHING_CLAIMED
) -> Lost:
    """The busiest device's idle time over the step window, less what is claimed; without a device, the main
    thread's whole time."""
    if device is None:
        pieces = host_pieces
        zero, none = np.zeros_like(pieces.start_ns), np.full_like(pieces.start_ns, NONE)
        start, end, cause, event = pieces.start_ns, pieces.end_ns, pieces.cause, pieces.event
        whole = zero + window.duration_ns
        return Lost(NO_DEVICE, window.duration_ns, start, end, cause, event, zero, zero, whole, none)
    ledger, gaps = device.ledger, device.ledger.gaps
    free = complement(claimed.get(device.id, EMPTY), window.start_ns, window.end_ns)
    segment, stretch = expand(*overlapping(free, ledger.start_ns, ledger.end_ns))
    start = np.maximum(ledger.start_ns[segment], free.start[stretch])
    end = np.minimum(ledger.end_ns[segment], free.end[stretch])
    drained_until = (ledger.start_ns + ledger.drained_ns)[segment]
    gap = ledger.gap[segment]
    return Lost(
        device.id,
        window.duration_ns,
        start,
        end,
        ledger.cause[segment],
        ledger.event[segment],
        np.clip(drained_until - start, 0, end - start),
        gap,
        (gaps.end_ns - gaps.start_ns)[gap],
        gaps.launch[gap],
    )


def host_time(pieces: Pieces, *causes: Cause, at_least_ns: int = 0) -> Intervals:
    """The main thread's time with these causes, hidden under GPU work or not, in stretches of at least so
    long."""
    some = np.isin(pieces.cause, np.array(causes, np.uint8))
    some &= pieces.end_ns - pieces.start_ns >= at_least_ns
    return union(pieces.start_ns[some], pieces.end_ns[some])


def removing(host: Intervals, share: float = 1.0) -> Removable:
    """A fix that takes this host time away: all of it, or at least this share."""
    most = Change(host)
    return Removable(most if share == 1.0 else Change(host, share), most)


def places(host: Host, event: Int64, weight_ns: Int64, *, by_operator: bool = False) -> list[Place]:
    """Host events as places in the user's code, the weightiest first: see facts/places.py."""
    found = by_place(host, event, weight_ns, by_operator=by_operator, most=MOST_PLACES)
    return [
        Place(operator=operator, time_ns=ns)
        if frame is None
        else Place(frame.file, frame.line, frame.function, operator, ns)
        for frame, operator, ns in found
    ]
