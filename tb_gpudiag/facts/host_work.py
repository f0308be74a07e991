"""What the host does, by operator, and what of that is the recorder's. Masks of events have shape (n,)."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.facts.core.handover import HostTime
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.kernels.little_work import in_small_operators
from tb_gpudiag.facts.launching.driver_calls import DriverCalls
from tb_gpudiag.facts.waiting.host_tasks import HostTasks, find_host_tasks
from tb_gpudiag.facts.waiting.interruptions import Interruptions, find_interruptions
from tb_gpudiag.facts.waiting.overhead import RecorderCost, in_slow_views, recorder_cost
from tb_gpudiag.facts.waiting.training_mode import (
    AnomalyMode,
    TrainingMode,
    anomaly_mode,
    training_mode,
    without_gradients,
)
from tb_gpudiag.vocabulary.api_calls import LAUNCH_CALL
from tb_gpudiag.vocabulary.marks import OPTIMIZER_STEP
from tb_gpudiag.vocabulary.operators import TABLE_GRADIENT


class HostWork:
    """The host's work in the whole recording."""

    def __init__(
        self, work: Work, host_time: HostTime, calls: DriverCalls, step_starts_ns: Int64, *, on_cpu: bool
    ) -> None:
        """on_cpu: operators compute on the CPU."""
        self._work, self._host, self._host_time = work, host_time.host, host_time
        self._calls, self._step_starts_ns, self._on_cpu = calls, step_starts_ns, on_cpu

    @cached_property
    def tasks(self) -> HostTasks:
        launches = self._calls.of(LAUNCH_CALL) if self._work.linked.any() else np.zeros(0, np.int64)
        return find_host_tasks(self._host, launches)

    @cached_property
    def interruptions(self) -> Interruptions:
        """Operators that the operating system interrupted."""
        return find_interruptions(self._host, on_cpu=self._on_cpu)

    @cached_property
    def small_operators(self) -> Bool:
        """Mask of the events in operators that are mostly overhead on the CPU."""
        return in_small_operators(self._host, self._step_starts_ns)

    @cached_property
    def slow_views(self) -> Bool:
        """Mask of the events in operators that compute nothing and take long."""
        return in_slow_views(self._host)

    @cached_property
    def table_gradients(self) -> Bool:
        """Mask of the events in operators that make gradients of whole tables, shape (n,)."""
        return self._host.tree.under(match(self._host.events, TABLE_GRADIENT))

    @cached_property
    def optimizer_steps(self) -> Bool:
        """Mask of the events in steps of an optimizer, shape (n,)."""
        return self._host.tree.under(match(self._host.events, OPTIMIZER_STEP))

    @cached_property
    def without_gradients(self) -> Bool:
        """Mask of the events that run while gradients are off, beside the training."""
        return without_gradients(self._host)

    @cached_property
    def training_mode(self) -> TrainingMode:
        return training_mode(self._host, self._work)

    @cached_property
    def anomaly_mode(self) -> AnomalyMode:
        return anomaly_mode(self._host)

    @cached_property
    def recorder_cost(self) -> RecorderCost:
        """What recording Python frames costs the main thread and those that launch."""
        waits = np.r_[self._host_time.blocking, self._host_time.full_queue.call]
        return recorder_cost(self._host, self._work, self._host_time.main, waits)
