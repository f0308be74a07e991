"""The recordings of a step clock: a few steps each, and none beside another profiler."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from tb_gpudiag.training import other_profilers
from tb_gpudiag.training.on_demand import OnDemand
from tb_gpudiag.training.unseen import unseen

logger = logging.getLogger("tb_gpudiag.training")


class ClockRecorder:
    """Records steps as `schedule` says.

    While another profiler of the program is entered, whether it records or waits, nothing is recorded. Where
    one is entered during a recording, that ends first, and is not written. If this happens on another thread,
    which cannot end it, it is left as it is.
    handler: gets the recordings. options: of `torch.profiler.profile`.
    """

    def __init__(self, handler: Callable[[Any], None], schedule: OnDemand, options: dict[str, Any]) -> None:
        self._handler, self._schedule, self._options = handler, schedule, options
        self._profiler: Any = None
        self._thread = 0
        self._ranks = self._armed_at = self._step = 0
        self._says_why_not = True

    def watch(self) -> None:
        """Look out for other profilers from now on."""
        other_profilers.watch(self._give_way)

    @property
    def is_recording(self) -> bool:
        """Whether the step that runs is part of a recording, or of its warm-up."""
        return self._profiler is not None

    def step(self, number: int, orders: Iterable[tuple[str, int]]) -> tuple[str, str, int] | None:
        """Begin, go on with, or end a recording, before step `number`.

        orders: why to record, and how many ranks do. Returns the name of the file, why, and since which step,
        where a recording was made. Raises whatever torch raises: then there is no recording any more.
        """
        self._step = number
        try:
            if self._profiler is not None:
                with unseen():
                    return self._go_on()
            for why, ranks in orders:
                self._schedule.arm(why)
                self._ranks = ranks
            # One that was entered before the clock was made has stepped in the clock's second step.
            if self._schedule.is_armed() and number > 1:
                with unseen():
                    self._start()
            return None
        except Exception:
            self._let_go()
            raise

    def close(self) -> None:
        """Write a recording that is under way."""
        with contextlib.suppress(Exception):
            if self._profiler is not None and self._has_session():
                with unseen():
                    self._profiler.stop()
        self._let_go()
        other_profilers.unwatch(self._give_way)

    def _start(self) -> None:
        from torch.profiler import profile

        if other_profilers.is_any_entered():
            if self._says_why_not:
                logger.info("gpudiag: the recording waits until the program's own profiler has ended")
            self._says_why_not = False
            return
        self._says_why_not = True
        self._profiler = profile(
            schedule=lambda _: self._schedule(self._step), on_trace_ready=self._handler, **self._options
        )
        self._profiler.step_num = self._armed_at = self._step
        self._profiler.gpudiag_ranks, self._ranks = self._ranks, 0
        self._thread = threading.get_ident()
        self._profiler.start()

    def _go_on(self) -> tuple[str, str, int] | None:
        if not self._has_session():
            self._drop("something else took torch's profiling session")
            return None
        self._profiler.step()
        if self._schedule.is_recording:
            # Not in the warm-up, whose metadata is lost.
            self._profiler.add_metadata("gpudiag_why", self._schedule.why)
        elif not self._schedule.is_busy:
            profiler = self._profiler
            profiler.stop()
            self._let_go()
            if getattr(profiler, "gpudiag_file", ""):
                return profiler.gpudiag_file, self._schedule.why, self._armed_at
        return None

    def _has_session(self) -> bool:
        from torch.autograd import _profiler_enabled

        is_here = threading.get_ident() == self._thread  # another thread's end of it would be the program's
        return is_here and (not self._schedule.is_recording or _profiler_enabled())

    def _give_way(self, profiler: Any) -> None:
        """Another profiler is about to begin. Raises nothing."""
        ours = self._profiler
        if ours is None or profiler is ours or profiler is ours.profiler:
            return
        ours.on_trace_ready = None
        if self._has_session():
            with contextlib.suppress(Exception), unseen():
                ours.stop()
        self._drop("the program's own profiler began")

    def _drop(self, why: str) -> None:
        self._let_go()
        logger.warning("gpudiag: the step clock gave up its recording: %s", why)

    def _let_go(self) -> None:
        if self._profiler is not None:
            other_profilers.forget(self._profiler)
            self._profiler = None
        self._schedule.give_up()
