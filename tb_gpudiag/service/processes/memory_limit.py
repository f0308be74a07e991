"""A limit on the memory of this process while it analyzes a file."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Callable

# Memory fills up at a few gigabytes per second, so this is often enough.
WATCH_EVERY_S = 0.05

# The watch sees used memory only, and with a delay. The system refuses allocations past this many limits and
# what libraries and threads reserve without using it. Libraries may crash when memory is refused, so the
# watch has to come first.
REFUSED_AT = 2
RESERVED_BYTES = 1 << 30


def limit_memory(limit_bytes: int, exceeded: Callable[[], None]) -> bool:
    """From now on, call `exceeded` on a thread of its own, again and again, while this process takes more.

    Allocations far past the limit fail with MemoryError. Return False if this process has a lower limit
    already (ulimit).
    """
    lowest = _refuse_beyond(limit_bytes * REFUSED_AT + RESERVED_BYTES)

    def watch() -> None:
        while True:
            time.sleep(WATCH_EVERY_S)
            if memory_bytes() > limit_bytes:
                exceeded()

    threading.Thread(target=watch, name="gpudiag-memory", daemon=True).start()
    return lowest


def release_memory() -> None:
    """Give back to the system what is not used any more."""
    gc.collect()
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None:  # not before something has been read
        pyarrow.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def memory_bytes() -> int:
    """Return the memory of this process that is not shared with files; 0 if the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            _, resident, shared, *_ = file.read().split()
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        pass
    try:
        import resource

        # macOS counts bytes. Linux counts kilobytes, but it has /proc.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    except ImportError:
        return 0


def _refuse_beyond(limit_bytes: int) -> bool:
    """Return False if there is a lower limit already."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        others = (soft, hard, resource.getrlimit(resource.RLIMIT_AS)[0])
        if any(limit not in (resource.RLIM_INFINITY, -1) and limit <= limit_bytes for limit in others):
            return False
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, hard))
    except (ImportError, OSError, ValueError):  # not on this system, or not allowed here
        pass
    return True
