"""One axis for the times of many threads, so that NumPy can sort and search all of them in one pass."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.intervals import distinct
from tb_gpudiag.trace.events import Int32, Int64


class ThreadAxis:
    """Gives each thread a stretch of the axis, and each of the given times a place in every stretch.

    Places are ranks of times, not times: however far apart the times are, no place overflows, because a trace
    has fewer than 2**31 threads and times.
    """

    def __init__(self, *times_ns: Int64) -> None:
        self._times_ns = distinct(np.concatenate(times_ns))

    @property
    def stride(self) -> int:
        """Length of each thread's stretch."""
        return len(self._times_ns)

    def places(self, thread: Int32, time_ns: Int64) -> Int64:
        """Return the places of times of these threads. The times must be among those of the axis."""
        rank = np.searchsorted(self._times_ns, time_ns)
        places: Int64 = thread.astype(np.int64) * self.stride + rank
        return places

    def times(self, places: Int64) -> Int64:
        """Return the times at these places."""
        times: Int64 = self._times_ns[places % max(self.stride, 1)]
        return times
