"""torch.profiler around the steps of a training loop that calls back."""

from __future__ import annotations

from typing import Any

from tb_gpudiag.training.diagnosis_handler import DiagnosisHandler
from tb_gpudiag.training.noting_tensors import NotingTensors
from tb_gpudiag.training.other_profilers import unseen


class ProfiledSteps:
    """A profiler whose recordings go to the handler.

    options: of `torch.profiler.profile`. Without a schedule, steps are recorded on demand: see
    `DiagnosisHandler.on_demand`.
    """

    def __init__(self, handler: DiagnosisHandler, options: dict[str, Any]) -> None:
        self._handler = handler
        self._options = options
        self._profiler: Any = None

    def start(self) -> None:
        """Begin to profile, at the first step."""
        from torch.profiler import profile

        schedule = self._options.get("schedule") or self._handler.on_demand()
        if self._options.get("profile_memory"):
            schedule = NotingTensors(schedule)
        options = {**self._options, "schedule": schedule}
        self._profiler = profile(on_trace_ready=self._handler, **options)
        with unseen():
            self._profiler.start()

    def step(self) -> None:
        if self._profiler is not None:
            with unseen():
                self._profiler.step()

    def stop(self) -> None:
        """End the training, and wait for the last diagnosis."""
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            with unseen():
                profiler.stop()
            self._handler.close()
