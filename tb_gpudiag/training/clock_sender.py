"""Sends the steps of a StepClock to a helper process, on a thread that sleeps nearly always."""

from __future__ import annotations

import atexit
import base64
import contextlib
import logging
import os
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final, TypeVar

from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.service.processes.child import Child, ChildEnded
from tb_gpudiag.service.processes.process_setup import NICE
from tb_gpudiag.training.outliers import Outliers

# Also the length of a block: phases come in bursts, as the waits of a loader with eight workers do, and a
# block has several.
SEND_EVERY_S = 10.0

# More than ten seconds of the shortest steps. While a helper is away, the oldest go: 64 MB are too many.
MOST_ROWS: Final = 100_000

TIME_LIMIT_S: Final = 120.0
CLOSE_S = 10.0
MOST_FAILURES: Final = 3

_T = TypeVar("_T")

logger = logging.getLogger("tb_gpudiag.training")


class ClockSender:
    """Rows of steps on their way to clocking.py.

    folder: where the helper writes. about: returns rank and number of ranks.
    `rows` is filled by the training: number, total and phases in ms.
    """

    def __init__(self, folder: str, about: Callable[[], tuple[int, int]]) -> None:
        self.rows: deque[tuple[float, ...]] = deque(maxlen=MOST_ROWS)
        self.made: deque[tuple[str, str, int]] = deque(maxlen=4)
        """Recordings that are made: name of the file, why, and at which step it was armed."""
        self.folder, self._about = folder, about
        self._orders: deque[tuple[int, str, int]] = deque(maxlen=4)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._child = Child("tb_gpudiag.training.clocking", nice=NICE)
        self._failures = 0

    def start(self) -> None:
        """Begin to send."""
        self._thread = threading.Thread(target=self._run, name="gpudiag-clock", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def has_orders(self) -> bool:
        """Whether `orders` may yield one now or later."""
        return bool(self._orders)

    def orders(self, step: int) -> Iterator[tuple[str, int]]:
        """Yield why to record from this step on, and how many ranks do."""
        while self._orders and step >= self._orders[0][0]:
            _, why, ranks = self._orders.popleft()
            yield why, ranks

    def outliers(self) -> Outliers:
        """Return what looks at rows on their way."""
        return Outliers(self.rows, self._about)

    def end(self) -> None:
        """Begin to send what is left, after which the thread ends."""
        self._child.nice = 0  # the program may wait: a helper that is still to be started has not long
        self._closing.set()

    def close(self) -> None:
        """Send what is left, and end the helper."""
        thread, self._thread = self._thread, None
        if thread is None or os.getpid() != self._pid:  # a fork has no thread
            return
        atexit.unregister(self.close)
        self.end()
        if thread is not threading.current_thread():
            thread.join(CLOSE_S)
            if thread.is_alive():
                logger.warning("gpudiag: the last steps were not written to %s in %g s", self.folder, CLOSE_S)
        self._child.close()

    def _run(self) -> None:
        try:
            while self._failures < MOST_FAILURES and not self._closing.wait(SEND_EVERY_S):
                self._send()
            if self._closing.is_set():
                self._send()
        except Exception as error:  # the clock goes on, and no one reads it
            logger.warning("gpudiag: steps are no longer written: %s", error)
        finally:
            self._child.stop()
            atexit.unregister(self.close)

    def _send(self) -> None:
        rank, world = self._about()
        taken: list[tuple[float, ...]] = _taken(self.rows)
        rows = base64.b64encode(array("d", chain.from_iterable(taken)).tobytes()).decode("ascii")
        request: dict[str, Any] = {
            "where": self.folder,
            "rank": rank,
            "world": world,
            "every_s": SEND_EVERY_S,
            "rows": rows,
            "made": _taken(self.made),
        }
        try:
            fields = self._child.ask(request, TIME_LIMIT_S).fields
        except (GpudiagError, ChildEnded, TimeoutError) as error:
            self._failures += 1
            if self._failures == MOST_FAILURES:
                logger.warning("gpudiag: steps are no longer written: %s", error)
            return
        self._failures = 0
        for line in fields["said"]:
            logger.warning("gpudiag: %s", line)
        if fields["why"]:
            self._orders.append((fields["at"], fields["why"], fields["ranks"]))


def _taken(queue: deque[_T]) -> list[_T]:
    """Take all out of a queue that the training fills meanwhile."""
    taken = []
    with contextlib.suppress(IndexError):
        while True:
            taken.append(queue.popleft())
    return taken
