"""What the host launched in the step window, what that cost, and what else it does, by operator. Masks of
events have shape (n,)."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, marked
from tb_gpudiag.facts.core.causes import Cause, CauseSpans
from tb_gpudiag.facts.core.handover import HostTime
from tb_gpudiag.facts.core.intervals import Intervals, Window, coverage
from tb_gpudiag.facts.core.launches import Work, launched_in
from tb_gpudiag.facts.core.ledger import Ledger
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.core.queue_depth import Queue, stream_queues
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.core.steady import Steady
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.facts.kernels.little_work import in_small_operators
from tb_gpudiag.facts.launching.clusters import DdpCopies, OptimizerLoop, ddp_copies, optimizer_loop
from tb_gpudiag.facts.launching.launch_costs import (
    HOTSPOT_KINDS,
    Hotspot,
    HotspotKind,
    LaunchCosts,
    hotspots,
    launch_costs,
)
from tb_gpudiag.facts.launching.launch_modes import (
    AllocatorCalls,
    DriverCalls,
    LaunchModes,
    allocator_calls,
    in_compiled_code,
    launch_modes,
)
from tb_gpudiag.facts.operators import done_again
from tb_gpudiag.facts.waiting.host_tasks import HostTasks, find_host_tasks
from tb_gpudiag.facts.waiting.interruptions import Interruptions, find_interruptions
from tb_gpudiag.facts.waiting.overhead import RecorderCost, in_slow_views, recorder_cost
from tb_gpudiag.facts.waiting.training_mode import (
    AnomalyMode,
    TrainingMode,
    anomaly_mode,
    evaluations,
    training_mode,
    without_gradients,
)
from tb_gpudiag.vocabulary.api_calls import LAUNCH_CALL
from tb_gpudiag.vocabulary.marks import OPTIMIZER_STEP
from tb_gpudiag.vocabulary.operators import ATEN, DRAWS, MAKES_STATE, MULTIPLIES, TABLE_GRADIENT
from tb_gpudiag.vocabulary.torch_frames import HostTask


class LaunchFacts:
    """Launches of all devices, and other calls of the driver."""

    def __init__(
        self,
        work: Work,
        host_time: HostTime,
        recording: Window,
        steady: Steady,
        host_window: Window,
        spans: CauseSpans,
        ledgers: list[Ledger],
    ) -> None:
        """host_window: when the host ran the steps. spans: what the main thread did then. ledgers: of all
        devices."""
        self._work, self._host, self._host_time = work, host_time.host, host_time
        self._recording, self._steady, self._host_window = recording, steady, host_window
        self._spans, self._ledgers = spans, ledgers

    @cached_property
    def calls(self) -> DriverCalls:
        """Calls of the whole recording."""
        return DriverCalls(self._work.events)

    @cached_property
    def allocator_calls(self) -> AllocatorCalls:
        """Calls that get device memory from the driver and return it."""
        return allocator_calls(self._host, self._host_window)

    @cached_property
    def queues(self) -> list[Queue]:
        """The launch queue of every stream that has one, by device and stream, in the whole recording."""
        return stream_queues(self._work, self._recording)

    @cached_property
    def in_window(self) -> Bool:
        """Mask of the work whose launch belongs to the step window, shape (g,)."""
        return launched_in(self._work, self._host_window, by_steps=len(self._steady.steps) > 0)

    @cached_property
    def modes(self) -> LaunchModes:
        """Compiled code and CUDA graphs."""
        blocking, steps = self._host_time.blocking, self._steady.steps
        return launch_modes(self._host, self._work, self.in_window, blocking, steps, self._host_window)

    def compiled(self, kernels: Kernels) -> Bool:
        """Mask of a GPU's work that compiled code launched, shape (k,)."""
        return in_compiled_code(self._host, self.modes.compiled, kernels.origin)

    @cached_property
    def costs(self) -> LaunchCosts:
        windows, spans = (self._steady.window, self._host_window), self._spans
        return launch_costs(self._work, self.in_window, self._host_time, spans, self._ledgers, *windows)

    @cached_property
    def hotspots(self) -> dict[HotspotKind, list[Hotspot]]:
        return {kind: hotspots(self.costs, self._host, kind) for kind in HOTSPOT_KINDS}

    @cached_property
    def ddp_copies(self) -> DdpCopies:
        return ddp_copies(self._host)

    @cached_property
    def optimizer_loop(self) -> OptimizerLoop:
        """The optimizer's operators."""
        return optimizer_loop(self._host, self._steady.window)


class HostWork:
    """The host's work in the whole recording."""

    def __init__(
        self, work: Work, host_time: HostTime, calls: DriverCalls, steps: Steps, *, on_cpu: bool
    ) -> None:
        """on_cpu: operators compute on the CPU."""
        self._work, self._host, self._host_time = work, host_time.host, host_time
        self._calls, self._steps, self._on_cpu = calls, steps, on_cpu

    @cached_property
    def tasks(self) -> HostTasks:
        return find_host_tasks(self._host, self._calls.of(LAUNCH_CALL))

    @cached_property
    def interruptions(self) -> Interruptions:
        """Operators that the operating system interrupted."""
        return find_interruptions(self._host, on_cpu=self._on_cpu)

    @cached_property
    def small_operators(self) -> Bool:
        """Mask of the events in operators that are mostly overhead on the CPU."""
        return in_small_operators(self._host, self._steps.start_ns)

    @cached_property
    def slow_views(self) -> Bool:
        """Mask of the events in operators that compute nothing and take long."""
        return in_slow_views(self._host)

    @cached_property
    def table_gradients(self) -> Bool:
        """Mask of the events in operators that make gradients of whole tables, and in those of an optimizer
        that go over the tables, shape (n,)."""
        makes = match(self._host.events, TABLE_GRADIENT)
        steps = self.optimizer_steps & done_again.whole_tables(self._host) & makes.any()
        return self._host.tree.under(makes | steps)

    @cached_property
    def used_by_none(self) -> Bool:
        """Mask of events in backward passes; see `done_again.used_by_none`."""
        return done_again.used_by_none(self._host, self._steps, self.optimizer_steps)

    @cached_property
    def on_tables(self) -> Bool:
        """Mask of the events in operators that compute with all rows of a table, forward and backward."""
        return done_again.on_tables(self._host)

    def called(self, event: Int64) -> Int64:
        """Return the operator that the job called, and not what that calls in turn, of events or NONE;
        outside of torch's operators, the event itself. Shape of `event`."""
        outer = np.append(self._host.tree.outermost(match(self._host.events, ATEN)), NONE)[event]
        return np.where(outer == NONE, event, outer)

    @cached_property
    def makes_again(self) -> Bool:
        """Mask of what the model computes of nothing but sizes, as far as gradients show, shape (n,): in
        functions that make tensors, draw no numbers, and call nothing that the backward pass goes through."""
        host = self._host
        learns = host.creators(host.backward_nodes, host.forward_by_sequence)
        draws = match(host.events, DRAWS)
        other = np.unique(host.place[np.r_[learns[learns != NONE], np.flatnonzero(draws)]])
        made = np.setdiff1d(host.place[match(host.events, MAKES_STATE)], np.r_[other, NONE])
        return np.isin(host.place, made) & (host.module != NONE) & ~host.in_backward & bool(len(learns))

    @cached_property
    def backward_again(self) -> tuple[Bool, Bool]:
        """Masks of events in backward passes; see `done_again.backward_again`."""
        return done_again.backward_again(self._host)

    @cached_property
    def backward_calls(self) -> tuple[Int64, Int64]:
        """The calls that wait for backward passes, and how long each takes."""
        calls = np.flatnonzero(self._host.tree.outermost_of(self._host.engine_wait))
        return calls, self._host.events.duration_ns[calls]

    @cached_property
    def calls_again(self) -> done_again.Repeats:
        """What a step calls again and again, with equal work."""
        return done_again.calls_again(self._host, self._steps)

    @cached_property
    def calls_on_more(self) -> done_again.Repeats:
        """What a step calls again and again, each time on more."""
        return done_again.calls_on_more(self._host, self._steps)

    @cached_property
    def same_for_items(self) -> Bool:
        """Mask of the events in what loading may do alike for each item, shape (n,)."""
        return done_again.same_for_items(self._host, self._steps)

    @cached_property
    def in_float64(self) -> Bool:
        """Mask of the events in operators that are known to multiply 64-bit numbers, shape (n,)."""
        events = self._host.events
        double = np.array(['"double"' in types for types in events.input_types], np.bool_)
        return self._host.tree.under(marked(double, events.types))

    @cached_property
    def multiplies(self) -> Bool:
        """Mask of operators that multiply matrices, convolve or attend."""
        return match(self._host.events, MULTIPLIES)

    @cached_property
    def optimizer_steps(self) -> Bool:
        """Mask of the events in steps of an optimizer, shape (n,), after the closure with a forward and a
        backward pass that they may call first."""
        host, start_ns = self._host, self._host.events.start_ns
        step, backward = host.tree.outermost(match(host.events, OPTIMIZER_STEP)), host.in_backward
        begins_ns = np.append(start_ns, np.iinfo(np.int64).max)  # NONE: never
        np.maximum.at(begins_ns, step[backward & (step != NONE)], start_ns[backward & (step != NONE)] + 1)
        return np.asarray(start_ns >= begins_ns[step], np.bool_)

    @cached_property
    def without_gradients(self) -> Bool:
        """Mask of the events that run while gradients are off, beside the training."""
        return without_gradients(self._host)

    @cached_property
    def _evaluations(self) -> Intervals:
        return evaluations(self._host, self._host_time.main, self._steps)

    def task_of(self, spans: CauseSpans) -> Int64:
        """HostTask of each stretch of the main thread, or NONE. A wait that no name says is for a lock."""
        evaluates = coverage(self._evaluations, spans.start_ns, spans.end_ns) > 0
        task = self.tasks.of(spans.event)
        task[(spans.cause == Cause.WAITING) & (task == NONE)] = HostTask.LOCK
        return np.where(evaluates, HostTask.EVALUATING, task)

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
