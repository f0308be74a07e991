"""Processes that do one analysis after another: to start one takes as long as ten small traces do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from tb_gpudiag.service.processes.child import Child

# A process without work keeps some 60 MB. Who opens one trace after another waits for no start.
IDLE_S: Final = 60.0

# Returns what tells that it is done, when the process is free again: the next work needs no other one.
Work = Callable[[Child], Callable[[], None]]


class WorkerPool:
    """Threads that keep a process each, and end it when no work comes for a while. Linux ends a process with
    the thread that started it."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._idle: list[tuple[Child, SimpleQueue[Work | None]]] = []

    def do(self, work: Work, nice: int) -> None:
        """Call `work`, on a thread of its own, with a process of this priority."""
        with self._lock:
            found = next((one for one in self._idle if one[0].nice == nice), None)
            if found is not None:
                self._idle.remove(found)
        given: SimpleQueue[Work | None] = found[1] if found is not None else SimpleQueue()
        given.put(work)
        if found is None:
            threading.Thread(
                target=self._serve, args=(nice, given), name="gpudiag-analysis", daemon=True
            ).start()

    def close(self) -> None:
        """End the processes that have nothing to do."""
        with self._lock:
            for _, given in self._idle:
                given.put(None)
            self._idle.clear()

    def _serve(self, nice: int, given: SimpleQueue[Work | None]) -> None:
        child = Child(self._module, nice=nice)
        try:
            while (work := self._next(child, given)) is not None:
                tell = work(child)
                if child.is_closed:
                    child.stop()
                    child = Child(self._module, nice=nice)
                with self._lock:
                    self._idle.insert(0, (child, given))
                tell()
        finally:
            child.stop()

    def _next(self, child: Child, given: SimpleQueue[Work | None]) -> Work | None:
        try:
            return given.get(timeout=IDLE_S)
        except Empty:
            with self._lock:
                if (child, given) in self._idle:
                    self._idle.remove((child, given))
                    return None
            return given.get()  # it was given work just now
