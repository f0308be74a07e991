"""Cut kernels that cannot have run for as long as the file says.

Work of one stream runs in order: none of it can still run when later work of the stream has ended. Durations
that overflowed do (rocprofiler, MI355X: two kernels of 1.6 s over hundreds of later ones). In 105 recordings,
kernels of a stream overlap by up to 13 µs, as programmatic dependent launches do, and none outlasts a later
one. The kernels of a graph share its launch and may run side by side: they are left alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.recorded import GPU_WORK_CATEGORIES


def in_order(events: Events) -> tuple[Events, int]:
    """Return the events, and how many of a GPU's were cut where the next one of their stream begins."""
    work = events.where(*GPU_WORK_CATEGORIES)
    work = work[events.stream[work] != NONE]
    stream = (events.device[work].astype(np.int64) << 32) + events.stream[work]
    order = np.argsort(stream, kind="stable")  # events are in order of start
    work, stream = work[order], stream[order]
    outlasts = _outlasts(stream, events.end_ns[work])
    if not outlasts.any():
        return events, 0
    outlasts &= _launched_alone(events.correlation[work])
    cut, following = work[:-1][outlasts[:-1]], work[1:][outlasts[:-1]]
    duration_ns = events.duration_ns.copy()
    duration_ns[cut] = events.start_ns[following] - events.start_ns[cut]
    return replace(events, duration_ns=duration_ns), len(cut)


def _outlasts(stream: Int64, end_ns: Int64) -> Bool:
    """Mask of the work that ends after later work of its stream, in order of stream and start, shape (w,)."""
    found = np.zeros(len(stream), np.bool_)
    if not ((end_ns[1:] < end_ns[:-1]) & (stream[1:] == stream[:-1])).any():
        return found  # as usual
    # Streams one after the other, so that one pass finds the least end that is still to come in each.
    _, rank = np.unique(end_ns, return_inverse=True)
    ends = rank + np.cumsum(np.r_[False, stream[1:] != stream[:-1]]) * len(stream)
    least = np.minimum.accumulate(ends[::-1])[::-1]
    found[:-1] = ends[:-1] > least[1:]
    return found


def _launched_alone(correlation: Int64) -> Bool:
    """Mask of the work that no other work shares its launch with, shape of `correlation`."""
    _, number, count = np.unique(correlation, return_inverse=True, return_counts=True)
    return count[number] == 1
