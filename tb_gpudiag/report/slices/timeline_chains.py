"""Gap chains: for one gap of a GPU, what ran before it, what ended it, what launched that, and what the host
did meanwhile. Prepared once for all gaps as arrays, then read for one gap at a time.

    gap_…        one row per gap, device after device
    cut_…        one row per segment of the idle ledger, in the order of the gaps: why the GPU was idle
    event_…      one row per event that a chain names, and per event that encloses one of them on its thread

An index of an event or a string is NONE if there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Int64, rows_with
from tb_gpudiag.errors import UsageError
from tb_gpudiag.facts.core.causes import Cause, Trigger
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.prepared import NS_PER_US, Prepared, TextTable, read_meta, text_at
from tb_gpudiag.report.slices.timeline_lanes import name_index, thread_title
from tb_gpudiag.trace.events import Events

# A gap of a second in a launch-bound job has thousands of segments. The largest of them explain it.
MOST_SEGMENTS = 60

# Innermost frames. Those further out are the same everywhere in a script.
MOST_FRAMES = 64

# Characters of a call stack in an old trace.
LONGEST_STACK = 8000


def prepare_chains(
    devices: Sequence[DeviceFacts], host: Host, work: Work, main_thread: int, window: Window, texts: TextTable
) -> tuple[dict[str, npt.NDArray[Any]], list[dict[str, Any]]]:
    """Return the arrays, and where each device's gaps are and over what time.

    window: the recorded window, in which idle time is accounted for alongside the GPU span.
    texts: begins with the causes' labels and the events' names; other texts are added.
    """
    parts: list[tuple[npt.NDArray[Any], ...]] = []
    places = []
    gaps_before = 0
    for device in devices:
        ledger = device.ledger
        gaps = ledger.gaps
        before = _ran_before(device, host.events)
        of_gaps = (gaps.start_ns, gaps.end_ns, gaps.trigger, before, gaps.ended_by, gaps.launch)
        number = (ledger.gap + gaps_before).astype(np.int32)
        parts.append((*of_gaps, number, ledger.start_ns, ledger.end_ns, ledger.cause, ledger.event))
        places.append(
            {
                "device": device.id,
                "first_gap": gaps_before,
                "gaps": len(gaps),
                "start_ns": min(device.span.start_ns, window.start_ns),
                "end_ns": max(device.span.end_ns, window.end_ns),
                "span": [device.span.start_ns, device.span.end_ns],
            }
        )
        gaps_before += len(gaps)
    nothing = [np.zeros(0, np.int64)] * len(_COLUMNS)
    columns = map(np.concatenate, zip(*parts, strict=True)) if parts else nothing
    arrays: dict[str, npt.NDArray[Any]] = dict(zip(_COLUMNS, columns, strict=True))
    return {**arrays, **_named_events(arrays, host, work, main_thread, texts)}, places


_COLUMNS = (
    "gap_start_ns",
    "gap_end_ns",
    "gap_trigger",
    "gap_before",
    "gap_after",
    "gap_launch",
    "cut_gap",
    "cut_start_ns",
    "cut_end_ns",
    "cut_cause",
    "cut_event",
)
_NAMING = ("gap_before", "gap_after", "gap_launch", "cut_event")


def _ran_before(device: DeviceFacts, events: Events) -> Int64:
    """Event index of the work that ended when each gap began; NONE at the window's start."""
    work = device.busy.work
    ends = events.end_ns[work]
    order = np.argsort(ends, kind="stable")
    start = device.ledger.gaps.start_ns
    at = np.searchsorted(ends[order], start, side="right") - 1
    last = order[np.maximum(at, 0)]
    return np.where((at >= 0) & (ends[last] == start), work[last], NONE)


def _named_events(
    arrays: dict[str, npt.NDArray[Any]], host: Host, work: Work, main_thread: int, texts: TextTable
) -> dict[str, npt.NDArray[Any]]:
    """Return the event columns, and the columns of `arrays` that name events as indices into them."""
    events = host.events
    named = np.zeros(len(events), np.bool_)
    for column in _NAMING:
        named[arrays[column][arrays[column] != NONE]] = True
    launched_by = np.full(len(events), NONE, np.int64)
    launched_by[work.event] = work.launch
    named |= host.tree.any_below(named)
    kept = np.flatnonzero(named)
    new_index = np.full(len(events) + 1, NONE, np.int64)  # one more, so that NONE stays NONE
    new_index[kept] = np.arange(len(kept))
    # GPU work belongs to the operator that launched it.
    caller = np.where(launched_by[kept] != NONE, launched_by[kept], kept)
    operator = host.operator[caller]
    return {
        **{column: new_index[arrays[column]].astype(np.int32) for column in _NAMING},
        "event_name": name_index(events.name[kept]),
        "event_start_ns": events.start_ns[kept],
        "event_duration_ns": events.duration_ns[kept],
        "event_parent": new_index[host.tree.parent[kept]].astype(np.int32),
        "event_stream": events.stream[kept],
        "event_thread": texts_of(
            events.thread[kept], lambda i: texts.add(thread_title(events, i, main_thread))
        ),
        "event_operator": np.where(operator != NONE, name_index(events.name[operator]), NONE),
        "event_place": texts_of(host.place[caller], lambda i: texts.add(str(host.frame(i) or ""))),
        "event_stack": texts_of(
            events.call_stack[kept], lambda i: texts.add(events.call_stacks[i], LONGEST_STACK)
        ),
    }


def texts_of(values: npt.NDArray[Any], text: Callable[[int], int]) -> npt.NDArray[np.int32]:
    """Map values to texts, calling `text` once per distinct value. NONE stays NONE."""
    distinct, index = np.unique(values, return_inverse=True)
    found = [NONE if value == NONE else text(int(value)) for value in distinct]
    return np.array(found, np.int32)[index] if len(found) else np.zeros(0, np.int32)


def gap_chain(prepared: Prepared, device: int, gap: int) -> pb.GapChain:
    """Return the chain of a gap. `gap` is its number in the timeline's boxes.

    The host's segments are in time order. If there are very many, the shortest are summed by cause at the
    end, so that all segments add up to the gap.
    Raises UsageError: the trace has no such gap.
    """
    chains = read_meta(prepared, "meta")["chains"]
    place = next((chain for chain in chains if chain["device"] == device), None)
    if place is None or not 0 <= gap < place["gaps"]:
        raise UsageError(f"GPU {device} has no gap {gap} in this trace.", where="gap")
    row = place["first_gap"] + gap
    rows = _Rows(prepared)
    start_ns, end_ns = int(prepared["gap_start_ns"][row]), int(prepared["gap_end_ns"][row])
    low, high = rows_with(prepared["cut_gap"], row)
    cause = np.array(prepared["cut_cause"][low:high])
    length = np.array(prepared["cut_end_ns"][low:high]) - prepared["cut_start_ns"][low:high]
    by_cause = np.bincount(cause, length, len(Cause))
    return pb.GapChain(
        device=device,
        start_us=start_ns / NS_PER_US,
        end_us=end_ns / NS_PER_US,
        trigger=Trigger(int(prepared["gap_trigger"][row])).label,
        by_cause=[pb.CauseTime(cause=c.label, us=by_cause[c] / NS_PER_US) for c in Cause if by_cause[c]],
        before=rows.work(int(prepared["gap_before"][row])),
        after=rows.work(int(prepared["gap_after"][row])),
        launch=rows.call(int(prepared["gap_launch"][row])),
        host=_segments(rows, int(low), cause, length, start_ns),
        **_ranked(prepared, place, gap),
    )


def _ranked(prepared: Prepared, place: Mapping[str, Any], gap: int) -> dict[str, Any]:
    """Return a gap's rank by length among the gaps that the report counts, and its neighbors in it."""
    own = slice(place["first_gap"], place["first_gap"] + place["gaps"])
    start, end = prepared["gap_start_ns"][own], prepared["gap_end_ns"][own]
    low, high = place["span"]
    counted = np.flatnonzero((start < high) & (end > low))
    order = counted[np.argsort(start[counted] - end[counted], kind="stable")]

    def message(at: int) -> pb.GapPlace | None:
        if not 0 <= at < len(order):
            return None
        which = int(order[at])
        return pb.GapPlace(gap=which, start_us=start[which] / NS_PER_US, end_us=end[which] / NS_PER_US)

    found = np.flatnonzero(order == gap)
    # From a gap outside the span, go to the longest one.
    at = int(found[0]) if len(found) else NONE
    return {
        "rank": at + 1,
        "gaps": len(order),
        "longer": message(at - 1) if len(found) else None,
        "shorter": message(at + 1),
    }


def _segments(
    rows: _Rows, low: int, cause: npt.NDArray[np.uint8], length: Int64, gap_start_ns: int
) -> list[pb.HostSegment]:
    longest = np.sort(np.argsort(-length, kind="stable")[:MOST_SEGMENTS])
    rest = np.ones(len(length), np.bool_)
    rest[longest] = False
    segments = [rows.segment(low + int(i)) for i in longest]
    for some in Cause:
        of_cause = rest & (cause == some)
        if of_cause.any():
            segments.append(
                pb.HostSegment(
                    cause=some.label,
                    name=f"{np.count_nonzero(of_cause)} shorter segments",
                    start_us=gap_start_ns / NS_PER_US,
                    duration_us=int(length[of_cause].sum()) / NS_PER_US,
                )
            )
    return segments


class _Rows:
    """Rows of the prepared arrays as messages."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared

    def _text(self, index: int) -> str:
        return "" if index == NONE else text_at(self._prepared, "text", index)

    def _of(self, column: str, event: int) -> str:
        """Text to which a column of the event refers."""
        return self._text(int(self._prepared[column][event]))

    def _us(self, column: str, row: int) -> float:
        return float(self._prepared[column][row]) / NS_PER_US

    def work(self, event: int) -> pb.GpuWork | None:
        """A kernel, copy or memset; None for NONE."""
        if event == NONE:
            return None
        return pb.GpuWork(
            name=self._of("event_name", event),
            stream=int(self._prepared["event_stream"][event]),
            start_us=self._us("event_start_ns", event),
            duration_us=self._us("event_duration_ns", event),
            operator=self._of("event_operator", event),
        )

    def call(self, event: int) -> pb.HostCall | None:
        """A host call with the calls that enclose it; None for NONE."""
        if event == NONE:
            return None
        return pb.HostCall(
            name=self._of("event_name", event),
            thread=self._of("event_thread", event),
            start_us=self._us("event_start_ns", event),
            duration_us=self._us("event_duration_ns", event),
            operator=self._of("event_operator", event),
            stack=self._stack(event),
        )

    def _stack(self, event: int) -> list[str]:
        """Enclosing calls, innermost last. In old traces, which have no Python spans, an operator carries its
        stack, innermost first."""
        frames: list[str] = []
        while (event := int(self._prepared["event_parent"][event])) != NONE and len(frames) < MOST_FRAMES:
            frames.append(self._of("event_name", event))
            carried = self._of("event_stack", event)
            if carried:
                frames.extend(frame.strip() for frame in carried.split(";") if frame.strip())
                break
        return frames[:MOST_FRAMES][::-1]

    def segment(self, cut: int) -> pb.HostSegment:
        """A segment of the idle ledger."""
        start_ns, end_ns = int(self._prepared["cut_start_ns"][cut]), int(self._prepared["cut_end_ns"][cut])
        event = int(self._prepared["cut_event"][cut])
        return pb.HostSegment(
            cause=Cause(int(self._prepared["cut_cause"][cut])).label,
            name=self._of("event_name", event) if event != NONE else "",
            start_us=start_ns / NS_PER_US,
            duration_us=(end_ns - start_ns) / NS_PER_US,
            place=self._of("event_place", event) if event != NONE else "",
        )
