"""Lost time: select stretches of idle time by cause, and find the code they belong to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, UInt8
from tb_gpudiag.facts.core.causes import Cause, CauseSpans
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, Window, complement, expand, overlapping, union
from tb_gpudiag.facts.core.places import by_place
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.replay.replay import Change
from tb_gpudiag.rules.rule import NOTHING_CLAIMED, Claimed, Place, Range, Removable, place_at
from tb_gpudiag.wording.format import share

# A page shows a handful. Longer lists go unread.
MOST_PLACES = 5
MOST_RANGES = 20

NO_DEVICE = -1
"""Device id of the main host thread's time, used when no GPU was recorded."""

ISSUING = (Cause.DISPATCH, Cause.LAUNCH, Cause.LATENCY)
"""Causes on the way to a launch: from entering its operator to the start of the kernel."""


@dataclass(frozen=True)
class Lost:
    """Lost time in the step window: idle segments of the busiest device, or the main thread's time if there
    is no GPU.

    Columns have shape (s,), are sorted by time and clipped to the window. gap_ns is the length of the gap
    that contains the segment.
    """

    device: int
    window_ns: int
    start_ns: Int64
    end_ns: Int64
    cause: UInt8
    event: Int64  # the host event the time is attributed to, or NONE
    drained_ns: Int64
    gap: Int64
    gap_ns: Int64
    launch: Int64  # launch of the work that ended the gap, or NONE

    @property
    def length_ns(self) -> Int64:
        return self.end_ns - self.start_ns

    def of(self, *causes: Cause) -> Bool:
        """Mask of the segments with one of these causes, shape (s,)."""
        return np.isin(self.cause, np.array(causes, np.uint8))

    def total_ns(self, chosen: Bool) -> int:
        return int(self.length_ns[chosen].sum())

    def share(self, nanoseconds: int) -> float:
        """Share of the step window, 0 to 1; 0 if the window is empty."""
        return nanoseconds / self.window_ns if self.window_ns else 0.0

    def sentence(self, subject: str, nanoseconds: int) -> str:
        """Say for how long `subject`, such as "data loading", keeps the GPU idle; without a GPU, how long it
        takes."""
        cost_share = share(nanoseconds, self.window_ns)
        if self.device == NO_DEVICE:
            return f"{subject} takes {cost_share} of the main thread's time"
        return f"{subject} keeps the GPU idle {cost_share} of the time"

    def claims(self, chosen: Bool) -> dict[int, Intervals]:
        """Intervals of the chosen segments, by device. Host time is never claimed."""
        if self.device == NO_DEVICE:
            return {}
        return {self.device: self.stretches(chosen)}

    def stretches(self, chosen: Bool) -> Intervals:
        """The chosen segments, with adjacent ones merged."""
        return union(self.start_ns[chosen], self.end_ns[chosen])

    def ranges(self, chosen: Bool) -> list[Range]:
        """The longest of the chosen stretches, longest first, for the timeline."""
        return longest(self.stretches(chosen), self.device)


def longest(stretches: Intervals, device: int) -> list[Range]:
    """The longest stretches as timeline ranges, longest first."""
    order = np.argsort(stretches.start - stretches.end, kind="stable")[:MOST_RANGES]
    return [Range(int(stretches.start[i]), int(stretches.end[i]), device) for i in order]


def lost_time(
    window: Window,
    device: DeviceFacts | None,
    main_thread_spans: CauseSpans,
    claimed: Claimed = NOTHING_CLAIMED,
) -> Lost:
    """Return the device's idle time in the step window, minus claimed time; without a device, the main
    thread's whole time."""
    if device is None:
        spans = main_thread_spans
        zero, none = np.zeros_like(spans.start_ns), np.full_like(spans.start_ns, NONE)
        start, end, cause, event = spans.start_ns, spans.end_ns, spans.cause, spans.event
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


def host_time(main_thread: CauseSpans, *causes: Cause, at_least_ns: int = 0) -> Intervals:
    """Return the main thread's time with these causes, in spans of at least `at_least_ns`, whether or not the
    GPU was busy meanwhile."""
    some = np.isin(main_thread.cause, np.array(causes, np.uint8))
    some &= main_thread.end_ns - main_thread.start_ns >= at_least_ns
    return union(main_thread.start_ns[some], main_thread.end_ns[some])


def removing(host: Intervals, share: float = 1.0) -> Removable:
    """A fix that removes between `share` and all of this host time."""
    most = Change(host)
    return Removable(most if share == 1.0 else Change(host, share), most)


def places(host: Host, event: Int64, weight_ns: Int64, *, by_operator: bool = False) -> list[Place]:
    """Map host events to places in the user's code, sorted by time, most first."""
    found = by_place(host, event, weight_ns, by_operator=by_operator, most=MOST_PLACES)
    return [
        place_at(
            one.frame,
            operator=one.operator,
            time_ns=one.time_ns,
            module=one.module,
            range=one.range,
            caller=one.caller,
        )
        for one in found
    ]
