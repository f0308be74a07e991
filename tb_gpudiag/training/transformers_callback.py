"""Callback for the Trainer of Hugging Face Transformers."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from tb_gpudiag.training.diagnosis_handler import DiagnosisHandler
from tb_gpudiag.training.profiled_steps import ProfiledSteps


class DiagnosisCallback(TrainerCallback):
    """`Trainer(callbacks=[DiagnosisCallback(handler, schedule=..., record_shapes=True)])`. A step is one of
    the optimizer.

    options: of `torch.profiler.profile`. Without a schedule, steps are recorded on demand: see
    `DiagnosisHandler.on_demand`.
    """

    def __init__(self, handler: DiagnosisHandler, **options: Any) -> None:
        self._steps = ProfiledSteps(handler, options)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Start the profiler."""
        self._steps.start()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._steps.step()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Stop the profiler."""
        self._steps.stop()
