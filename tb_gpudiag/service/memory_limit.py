"""A limit on the memory of this process while it analyzes a file."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

# Memory fills up at a few gigabytes per second, so this is often enough.
WATCH_EVERY_S = 0.05

# The watch sees used memory only, and with a delay. The system refuses allocations past this many limits.
REFUSED_AT = 2


def limit_memory(limit_bytes: int, exceeded: Callable[[], None]) -> None:
    """From now on, call `exceeded` on a thread of its own, again and again, while this process takes more.

    Allocations far past the limit fail with MemoryError.
    """
    _refuse_beyond(limit_bytes * REFUSED_AT)

    def watch() -> None:
        while True:
            time.sleep(WATCH_EVERY_S)
            if memory_bytes() > limit_bytes:
                exceeded()

    threading.Thread(target=watch, name="gpudiag-memory", daemon=True).start()


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


def _refuse_beyond(limit_bytes: int) -> None:
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if all(limit == resource.RLIM_INFINITY or limit_bytes < limit for limit in (soft, hard)):
            resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, hard))
    except (ImportError, OSError, ValueError):  # not on this system, or not allowed here
        pass
