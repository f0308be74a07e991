"""Limits on the memory and time of this process while it analyzes files."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from tb_gpudiag.errors import LimitReached, used_up

# Memory fills up at a few gigabytes per second at most, so this is often enough.
WATCH_EVERY_S = 0.05

# The watching thread sees only used memory, and with a delay. The system refuses allocations beyond this many
# times the limit, plus what libraries and threads reserve without using it. Libraries may crash then, so the
# thread must act first.
REFUSED_AT = 2
RESERVED_BYTES = 1 << 30

_SIGNAL = signal.SIGUSR2

# Code that does not return to Python notices no signal. So much later, the system ends the whole process.
ENDED_AT = 1.1
ENDED_AFTER_S = 1.0


class _TooLate(BaseException):
    """The analysis takes too long. Not an Exception, which code may take for a bug in one of its parts."""


class AnalysisLimit:
    """Stops the analysis of a file that takes more memory or time than the limit; other files are still
    analyzed.

    It raises an exception in the main thread by a signal, which also interrupts waiting for other threads. If
    that has no effect, the process ends: by SIGALRM, which nothing in Python can keep.
    """

    def __init__(self, limit_bytes: int, time_limit_s: float) -> None:
        self._limit_bytes = limit_bytes
        self._time_limit_s = time_limit_s
        self._watched = False
        self._late = False
        self._exceeded = False
        self._lowest = False  # there was no lower limit before (ulimit)
        self._works = threading.current_thread() is threading.main_thread()
        if self._works:
            signal.signal(_SIGNAL, self._stop)
            self._lowest = limit_memory(self._limit_bytes, self._tell)

    @contextlib.contextmanager
    def watched(self, where: str) -> Iterator[None]:
        """Raise MemoryError if the code inside takes too much memory, LimitReached if it takes too long."""
        if self._exceeded:  # by the previous file, which is no longer in memory
            release_memory()
        self._exceeded = self._late = False
        self._watched = True
        timer = threading.Timer(self._time_limit_s, self._tell_time)
        timer.daemon = True
        try:
            if self._works:
                timer.start()
                _end_after(self._time_limit_s * ENDED_AT + ENDED_AFTER_S)
            yield
        except _TooLate:
            raise out_of_time(self._time_limit_s, where) from None
        finally:
            self._watched = False
            timer.cancel()
            if self._works:
                _end_after(0)

    @contextlib.contextmanager
    def within(self, where: str) -> Iterator[None]:
        """Raise LimitReached if the code inside takes too much memory or too long."""
        try:
            with self.watched(where):
                yield
        except Exception as error:
            if reached := self.reached(error, where):
                raise reached from error
            raise

    def reached(self, error: BaseException, where: str) -> LimitReached | None:
        """Return the error for a file that took too much, if that is what this one says."""
        limit_bytes = self._limit_bytes if self._exceeded or self._lowest else 0
        return used_up(error, where=where, limit_bytes=limit_bytes)

    def _tell(self) -> None:
        if self._watched and not self._exceeded:
            self._exceeded = True
            signal.pthread_kill(threading.main_thread().ident or 0, _SIGNAL)

    def _tell_time(self) -> None:
        self._late = True
        signal.pthread_kill(threading.main_thread().ident or 0, _SIGNAL)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if self._watched:
            raise _TooLate if self._late else MemoryError


def limit_memory(limit_bytes: int, exceeded: Callable[[], None]) -> bool:
    """From now on, call `exceeded` on a separate thread, repeatedly, while this process takes more memory.

    It replaces the limit before it. Allocations far beyond the limit fail with MemoryError. Return False if
    this process has a lower limit already (ulimit).
    """
    lowest = _refuse_beyond(limit_bytes * REFUSED_AT + RESERVED_BYTES)
    with _starting:
        is_first = not _watched
        _watched[:] = [(limit_bytes, exceeded)]
        if is_first:  # a program may run many commands in one process
            threading.Thread(target=_watch, name="gpudiag-memory", daemon=True).start()
    return lowest


def of_this_process(limit_bytes: int) -> int:
    """Return the limit of a process that this one starts: not more than its own."""
    return min(limit_bytes, *(own for own, _ in _watched)) if _watched else limit_bytes


_starting = threading.Lock()
_watched: list[tuple[int, Callable[[], None]]] = []
"""The limit of this process, once it has one."""


def _watch() -> None:
    while True:
        time.sleep(WATCH_EVERY_S)
        ((limit_bytes, exceeded),) = _watched
        if memory_bytes() > limit_bytes:
            exceeded()


def _end_after(seconds: float) -> None:
    """Have the system end this process, whatever it does then; 0 for never. A program that has this timer
    keeps it."""
    with contextlib.suppress(AttributeError):  # Windows
        if signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
            signal.setitimer(signal.ITIMER_REAL, seconds)


def out_of_time(limit_s: float, where: str) -> LimitReached:
    """Return the error for a file that took longer than the limit."""
    return LimitReached(
        f"The analysis was stopped at its time limit of {limit_s:g} s.",
        where=where,
        remedy="Record fewer steps, or increase GPUDIAG_TIME_LIMIT_S.",
    )


def release_memory() -> None:
    """Return unused memory to the operating system."""
    gc.collect()
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None:  # it is not imported before something was read
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
