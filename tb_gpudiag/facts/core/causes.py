"""Causes and triggers of idle time: two closed lists, and stretches of time with a cause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tb_gpudiag.arrays import Bool, Int32, Int64, UInt8
from tb_gpudiag.facts.core.intervals import Intervals, coverage, distinct, expand, overlapping
from tb_gpudiag.vocabulary.recorded import LabeledEnum


class Cause(LabeledEnum):
    """Why a GPU was idle, in the order in which causes are shown."""

    INPUT = 0  # the host fetched data
    COMPILE = 1  # the host compiled, captured or loaded GPU code
    SYNC = 2  # the host was blocked in a call that waits for the GPU
    ALLOCATOR = 3  # the host got memory from the driver or returned it
    COLLECTIVE = 4  # the host was inside a collective operation
    PYTHON = 5  # the host ran user code between operators
    DISPATCH = 6  # the host was inside an operator, on its way to a launch
    LAUNCH = 7  # the host was inside the launch call
    LATENCY = 8  # the launch call had returned; the GPU took its usual turnaround
    GRAPH = 9  # the same between two nodes of one graph launch: the host has no part in it
    QUEUED = 10  # work was queued: a dependency, another stream, or a cause that the trace does not show
    UNLINKED = 11  # the work that ended the gap has no launch in the trace
    PROFILER = 12  # the profiler itself
    INITIALIZATION = 13  # first-run work: contexts, libraries, searches, lazy loading, the start of a loader
    UNRECORDED = 14  # the GPU was busy with work that the trace lacks: from before it, or of a CUDA graph
    HOST = 15  # the host did something between calls, and the trace has neither operators nor frames
    REQUESTS = 16  # an inference engine had nothing to run
    WAITING = 17  # the host sat in a call that waits: for another thread, a process, a socket, a file


BETWEEN_CALLS = (Cause.PYTHON, Cause.HOST, Cause.WAITING)
"""Causes of the host's time outside of operators and calls."""


class Trigger(LabeledEnum):
    """Why the launch queue was empty when a gap began."""

    DRAINED = 0  # a blocking call that returned just before the gap or within it had emptied the queue
    STARVED = 1  # the host never got ahead of the GPU
    QUEUED = 2  # it was not empty
    UNKNOWN = 3  # the launch is not known


class CauseSpans(NamedTuple):
    """Stretches of time with a cause. Shape (p,) each; columns as in ledger.Ledger."""

    start_ns: Int64
    end_ns: Int64
    cause: UInt8
    gap: Int32
    event: Int32
    thread: Int32

    def take(self, index: Int64 | Bool) -> CauseSpans:
        """Return the spans with these indices, or of this mask."""
        return CauseSpans._make(column[index] for column in self)

    def in_order(self) -> CauseSpans:
        """Return the spans in order of time; spans that start together keep their order."""
        if (self.start_ns[1:] >= self.start_ns[:-1]).all():
            return self
        return self.take(np.argsort(self.start_ns, kind="stable"))

    @staticmethod
    def join(parts: Sequence[CauseSpans]) -> CauseSpans:
        """Concatenate the parts; without parts, return no spans."""
        if not parts:
            time, none = np.zeros(0, np.int64), np.zeros(0, np.int32)
            return CauseSpans(time, time, none.astype(np.uint8), none, none, none)
        return (
            parts[0] if len(parts) == 1 else CauseSpans._make(map(np.concatenate, zip(*parts, strict=True)))
        )


def time_by_cause(time: Intervals, cause: UInt8, start: Int64, end: Int64) -> Int64:
    """Return how much of each stretch [start, end) the intervals of each cause cover, shape (k, causes).

    cause: of each interval; intervals do not overlap and are in order."""
    spent = np.zeros((len(start), len(Cause)), np.int64)
    for one in Cause:
        some = cause == one
        spent[:, one] = coverage(Intervals(time.start[some], time.end[some]), start, end)
    return spent


def repaint(spans: CauseSpans, time: Intervals, cause: Cause, some: Bool | None = None) -> CauseSpans:
    """Change the cause of the time in these intervals. The result is in order of time.

    some: mask of the spans that may change, shape (p,); by default those whose host is on its way to a
    launch: in user code, an operator or the launch call.
    """
    if not len(time.start):
        return spans
    if some is None:
        some = np.isin(spans.cause, np.array((*BETWEEN_CALLS, Cause.DISPATCH, Cause.LAUNCH), np.uint8))
    # Of many spans, an interval is in few.
    some = some & np.less(*overlapping(time, spans.start_ns, spans.end_ns))
    chosen = spans.take(some)
    edges = distinct(np.concatenate(time))
    far = np.iinfo(np.int64)
    start, end = np.r_[far.min, edges], np.r_[edges, far.max]
    painted = np.isin(start, time.start)
    left, right = overlapping(Intervals(start, end), chosen.start_ns, chosen.end_ns)
    owner, inner = expand(left, right)
    split = CauseSpans(
        np.maximum(chosen.start_ns[owner], start[inner]),
        np.minimum(chosen.end_ns[owner], end[inner]),
        np.where(painted[inner], np.uint8(cause), chosen.cause[owner]).astype(np.uint8),
        chosen.gap[owner],
        chosen.event[owner],
        chosen.thread[owner],
    )
    order = np.argsort(np.r_[spans.start_ns[~some], split.start_ns], kind="stable")
    columns: Iterable[tuple[Any, Any]] = zip(spans, split, strict=True)
    return CauseSpans._make(np.concatenate([old[~some], new])[order] for old, new in columns)
