"""One axis for the times of many threads, so that NumPy can sort and search all of them in one pass."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Int32, Int64
from tb_gpudiag.facts.core.intervals import distinct

# Twice as many places as this, and one more, fit 64 bits: nesting doubles them.
_MOST_PLACES = 2**61
_MOST_THREADS = 2**31


class ThreadAxis:
    """Gives each thread a stretch of the axis, and each of the given times a place in every stretch.

    Places are times since the first one. If those of all threads do not fit 64 bits, because events are years
    apart, places are ranks of times: a trace has fewer than 2**31 threads and times.
    """

    def __init__(self, *times_ns: Int64, threads: int = _MOST_THREADS) -> None:
        """threads: their numbers are below it."""
        filled = [times for times in times_ns if len(times)]
        self._first_ns = min((int(times.min()) for times in filled), default=0)
        self.stride = max((int(times.max()) for times in filled), default=-1) - self._first_ns + 1
        """Length of each thread's stretch."""
        self._ranked_ns: Int64 | None = None
        if self.stride * threads > _MOST_PLACES:
            self._ranked_ns = distinct(np.concatenate(filled))
            self.stride = len(self._ranked_ns)

    def places(self, thread: Int32, time_ns: Int64) -> Int64:
        """Return the places of times of these threads. The times must be among those of the axis."""
        if self._ranked_ns is None:
            within = time_ns - self._first_ns
        else:
            within = np.searchsorted(self._ranked_ns, time_ns)
        places: Int64 = thread.astype(np.int64)
        places *= self.stride
        places += within
        return places

    def times(self, places: Int64) -> Int64:
        """Return the times at these places."""
        times: Int64 = places % max(self.stride, 1)
        if self._ranked_ns is not None:
            return self._ranked_ns[times]
        times += self._first_ns
        return times
