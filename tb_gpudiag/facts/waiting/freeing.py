"""When the main thread gives large blocks of host memory back to the system."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, CauseSpans
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, union
from tb_gpudiag.trace.events import MemoryEvents
from tb_gpudiag.vocabulary.recorded import DeviceType

# Smaller blocks go back to the C library, which takes microseconds. A batch of 16 MB that a loader's worker
# shares takes 3 ms to unmap on this project's test machine, and 2 ms in a public recording.
LEAST_BYTES = 2**20
LEAST_NS = 50_000


def find_freeing(memory: MemoryEvents, main_thread: CauseSpans) -> Intervals:
    """Return the time between operators in which the main thread frees large blocks.

    The profiler notes a block once it is free: what the thread did since its last call was to free it."""
    freed = (memory.device_type == DeviceType.CPU) & (memory.bytes <= -LEAST_BYTES)
    if not freed.any() or not len(main_thread.start_ns):
        return EMPTY
    time_ns = memory.time_ns[freed]
    span = np.searchsorted(main_thread.start_ns, time_ns, side="right") - 1
    inside = (span >= 0) & (time_ns <= main_thread.end_ns[np.maximum(span, 0)])
    inside &= np.isin(main_thread.cause[span], np.array(BETWEEN_CALLS, np.uint8))
    start_ns, end_ns = main_thread.start_ns[span[inside]], time_ns[inside]
    long = end_ns - start_ns >= LEAST_NS
    return union(start_ns[long], end_ns[long])
