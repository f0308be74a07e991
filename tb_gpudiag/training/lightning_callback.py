"""Callback for PyTorch Lightning."""

from __future__ import annotations

from typing import Any

from tb_gpudiag.training.diagnosis_handler import DiagnosisHandler
from tb_gpudiag.training.profiled_steps import ProfiledSteps

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback


class DiagnosisCallback(Callback):
    """`Trainer(callbacks=[DiagnosisCallback(handler, schedule=..., record_shapes=True)])`. A step is a batch.

    options: of `torch.profiler.profile`. Without a schedule, steps are recorded on demand: see
    `DiagnosisHandler.on_demand`.
    """

    def __init__(self, handler: DiagnosisHandler, **options: Any) -> None:
        self._steps = ProfiledSteps(handler, options)

    def on_train_start(self, *_: Any) -> None:
        self._steps.start()

    def on_train_batch_end(self, *_: Any) -> None:
        """Note the end of a step."""
        self._steps.step()

    def on_train_end(self, *_: Any) -> None:
        """Stop the profiler."""
        self._steps.stop()

    def on_exception(self, *_: Any) -> None:
        """Stop the profiler, because Lightning ends the training."""
        self._steps.stop()
