"""Callback for the Trainer of Hugging Face Transformers."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from tb_gpudiag.training.diagnosis_handler import DiagnosisHandler
from tb_gpudiag.training.profiled_steps import ProfiledSteps


class DiagnosisCallback(TrainerCallback):
    """`Trainer(callbacks=[DiagnosisCallback(handler, schedule=..., record_shapes=True)])`. Steps are the
    optimizer's.

    options: of `torch.profiler.profile`. Without a schedule, it records on demand: see
    `DiagnosisHandler.on_demand`.
    """

    def __init__(self, handler: DiagnosisHandler, **options: Any) -> None:
        self._steps = ProfiledSteps(handler, options)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Begin."""
        self._steps.start()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """End a step."""
        self._steps.step()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """End."""
        self._steps.stop()
