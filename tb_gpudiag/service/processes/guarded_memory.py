"""A limit on memory for each of several files: one that takes more costs only its own result."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from tb_gpudiag.errors import LimitReached
from tb_gpudiag.service.processes.memory_limit import limit_memory, release_memory
from tb_gpudiag.service.settings import MIB, command_memory_limit_bytes

_SIGNAL = signal.SIGUSR2


class MemoryLimit:
    """Stops the analysis of a file that takes more memory than the limit (default: that of a command).

    It raises MemoryError in the main thread, by a signal: that also interrupts waiting for other threads.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self._limit_bytes = command_memory_limit_bytes() if limit_bytes is None else limit_bytes
        self._watched = False
        self._exceeded = False
        self._lowest = False  # no lower limit of the process was there before
        if threading.current_thread() is threading.main_thread():
            signal.signal(_SIGNAL, self._stop)
            self._lowest = limit_memory(self._limit_bytes, self._tell)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Raise MemoryError if the code inside takes too much."""
        if self._exceeded:  # by the file before, which is gone now
            release_memory()
        self._exceeded = False
        self._watched = True
        try:
            yield
        finally:
            self._watched = False

    def error(self, where: str) -> LimitReached:
        """Return the error for a file that took too much."""
        if self._exceeded or self._lowest:
            return LimitReached.of_memory(self._limit_bytes // MIB, where=where)
        return LimitReached(
            "There is not enough memory to diagnose it.",
            where=where,
            remedy="Close other programs, raise the limit of this process (ulimit), or record fewer steps.",
        )

    def _tell(self) -> None:
        if self._watched and not self._exceeded:
            self._exceeded = True
            signal.pthread_kill(threading.main_thread().ident or 0, _SIGNAL)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if self._watched:
            raise MemoryError
