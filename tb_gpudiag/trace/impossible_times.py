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
    if len(work) < 2:
        return events, 0
    work = work[np.lexsort((events.start_ns[work], events.stream[work], events.device[work]))]
    outlasts = _outlasts(events, work) & _launched_alone(events.correlation[work])
    cut, following = work[:-1][outlasts[:-1]], work[1:][outlasts[:-1]]
    if not len(cut):
        return events, 0
    duration_ns = events.duration_ns.copy()
    duration_ns[cut] = events.start_ns[following] - events.start_ns[cut]
    return replace(events, duration_ns=duration_ns), len(cut)


def _outlasts(events: Events, work: Int64) -> Bool:
    """Mask of the work that ends after later work of its stream, shape of `work`, which is in order of stream
    and start."""
    device, stream = events.device[work], events.stream[work]
    number = np.cumsum(np.r_[False, (stream[1:] != stream[:-1]) | (device[1:] != device[:-1])])
    _, rank = np.unique(events.end_ns[work], return_inverse=True)
    # Streams one after the other, so that one pass finds the least end that is still to come in each.
    ends = rank + number * len(work)
    least = np.minimum.accumulate(ends[::-1])[::-1]
    return np.r_[ends[:-1] > least[1:], False]


def _launched_alone(correlation: Int64) -> Bool:
    """Mask of the work that no other work shares its launch with, shape of `correlation`."""
    _, number, count = np.unique(correlation, return_inverse=True, return_counts=True)
    return count[number] == 1
