"""Facts: everything that rules and views may know about a trace.

Each fact is computed by a function or a class of one of the rooms, whose signature says what it needs.
`Facts` says which fact needs which, and computes each one once, when it is first used. So do its parts, for
a GPU (DeviceFacts), for what the host launched (LaunchFacts) and for what else it did (HostWork). No
thresholds, no prose.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.causes import Cause, CauseSpans
from tb_gpudiag.facts.core.first_run import first_run
from tb_gpudiag.facts.core.graphs import WholeGraphs, unrecorded_graphs, whole_graphs
from tb_gpudiag.facts.core.handover import FirstRun, HostTime, find_main_thread
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.idle import find_gpu_times
from tb_gpudiag.facts.core.intervals import Intervals, Window, merged
from tb_gpudiag.facts.core.known_stretches import find_captures, find_loader_starts, find_request_waits
from tb_gpudiag.facts.core.launches import join_launches
from tb_gpudiag.facts.core.ledger import GpuTime, communication_kernels, find_busy
from tb_gpudiag.facts.core.links import find_links
from tb_gpudiag.facts.core.lost_work import find_lost_work, without_lost_ends
from tb_gpudiag.facts.core.recording import (
    Steps,
    find_recorded,
    find_steps,
    longest_silence,
    operator_numbers,
    recording_window,
)
from tb_gpudiag.facts.core.steady import Steady, all_of, start_of_one, steady_part, step_borders
from tb_gpudiag.facts.core.transfers import find_transfers
from tb_gpudiag.facts.device_facts import DeviceFacts, TraceAround
from tb_gpudiag.facts.host_facts import HostWork, LaunchFacts
from tb_gpudiag.facts.kernels.back_ends import on_cpu, under_way
from tb_gpudiag.facts.kernels.collectives import on_device
from tb_gpudiag.facts.kernels.exposure import CollectiveExposure, exposure_on_cpu, exposure_on_device
from tb_gpudiag.facts.kernels.mfu import recomputed
from tb_gpudiag.facts.launching.graph_nodes import BatchSizes, CapturedGraphs, find_captured
from tb_gpudiag.facts.memory.device_memory import DeviceMemory, device_memory, memory_context
from tb_gpudiag.facts.operators.call_tree import CallTree
from tb_gpudiag.facts.replay.replay import Replay
from tb_gpudiag.facts.replay.unslowed import Spent, Unslowed, find_unslowed
from tb_gpudiag.facts.stepping.engine_steps import NO_ENGINE, EngineSteps, find_engine_steps
from tb_gpudiag.facts.stepping.inferred import InferredSteps, infer_steps
from tb_gpudiag.facts.stepping.serving_times import Serving, find_serving
from tb_gpudiag.facts.stepping.variance import MeasuredSteps, measure_on_device, measure_on_host
from tb_gpudiag.facts.waiting.compilation import compiled_functions, is_first_call
from tb_gpudiag.facts.waiting.compile_reasons import CompileReasons, compile_reasons
from tb_gpudiag.facts.waiting.cpu_thread import cpu_thread
from tb_gpudiag.facts.waiting.freeing import find_freeing
from tb_gpudiag.facts.waiting.gpu_use import GpuUse, find_gpu_use
from tb_gpudiag.facts.waiting.host_lead import HostLead, find_host_lead
from tb_gpudiag.facts.waiting.job_kind import job_kind
from tb_gpudiag.facts.waiting.loading import batches
from tb_gpudiag.facts.waiting.overhead import LEAST, LIKELY, LIKELY_ON_CPU, MOST, EventCosts
from tb_gpudiag.facts.waiting.stream_waits import stream_waits
from tb_gpudiag.step_time import StepTime, step_time
from tb_gpudiag.trace.events import Trace
from tb_gpudiag.vocabulary.api_calls import LAUNCH_CALL

T = TypeVar("T")


def fact(compute: Callable[[Facts], T]) -> cached_property[T]:
    """Return a property of Facts that is computed once, when it is first used."""
    return cached_property(compute)


class Facts:
    """Facts of one trace, in order of computation."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.events = trace.events
        self._exposure: dict[int, CollectiveExposure] = {}

    # core: work, steps and windows

    recording = fact(lambda f: recording_window(f.trace))

    @cached_property
    def engine(self) -> EngineSteps:
        """The steps of an inference server; without any in other jobs, and where the trace shows none."""
        return find_engine_steps(self.events) if self.job.server is not None else NO_ENGINE

    @cached_property
    def recorded_steps(self) -> Steps:
        """The steps of an inference server, or else those that torch.profiler marked. A lone step of a server
        is no step: what comes before and after it may belong to others."""
        if len(self.engine) > 1:
            return self.engine.steps
        return find_steps(self.events)

    after_recording_ns = fact(lambda f: int(f.events.end_ns.max(initial=0)) - f.recording.end_ns)
    """How long the file goes on after all that was recorded of the job."""
    silence = fact(lambda f: longest_silence(f.events, f.recording))
    """The longest stretch of the recording in which nothing begins or ends."""

    recorded = fact(lambda f: find_recorded(f.trace, steps=len(f.recorded_steps) > 0 or bool(f.engine)))
    operator_numbers = fact(lambda f: operator_numbers(f.events))
    work = fact(lambda f: join_launches(f.events))

    @cached_property
    def inferred_steps(self) -> InferredSteps | None:
        """The repetition of the busiest device's launches, where no steps were recorded; None where there are
        steps, or no clear repetition: an engine's lone step repeats its layers."""
        if not self.busy or len(self.recorded_steps) or self.engine:
            return None
        return infer_steps(self.work, self.transfers, self.host, self.busy[0], self.recording)

    @cached_property
    def all_steps(self) -> Steps:
        """The recorded steps, or else the inferred ones, each one until the next one starts."""
        inferred = self.inferred_steps
        if inferred is not None and inferred.are_steps:
            return inferred.steps
        return self.recorded_steps.in_a_row()

    @cached_property
    def recorded_window(self) -> Window:
        """All recorded steps with the GPU work that they launched; without marks, the whole recording."""
        if not len(self.recorded_steps):
            return self.recording
        steps = self.all_steps
        return Window(int(steps.start_ns[0]), int(step_borders(steps, self.work)[-1]))

    communication = fact(lambda f: communication_kernels(f.events))
    """Mask of communication kernels, shape (n,)."""

    busy = fact(lambda f: find_busy(f.work, f.communication))
    """When each device with work of some duration worked, the busiest first."""

    transfers = fact(lambda f: find_transfers(f.work))
    # core: the host

    host = fact(lambda f: Host(f.events))
    main_thread = fact(lambda f: find_main_thread(f.host, f.recorded_steps, f.work))
    """Index of the thread that runs the steps, or NONE: see find_main_thread."""

    @cached_property
    def host_time(self) -> HostTime:
        found = first_run(self.host, self.work, self.all_steps, self.trace.memory)
        once = FirstRun(found, self.loader_starts)
        return HostTime(self.host, self.work, self.main_thread, once, self.captures, self.request_waits)

    loader_starts = fact(lambda f: find_loader_starts(f.host, f.work, f.main_thread))
    """When a thread started a loader."""

    batches = fact(lambda f: batches(f.host, f.loader_starts, f.host_window))
    """BatchSizes that a loader fetched for the step window."""

    @cached_property
    def compile_reasons(self) -> CompileReasons:
        """What torch.compile logged in this process, joined to the recording; None without a log."""
        log = self.trace.compile_log
        functions = compiled_functions(self.host, self.all_steps, self.recording) if log else []
        return compile_reasons(log, self.host, functions, self.trace.origin_ns, self.host_window)

    request_waits = fact(lambda f: find_request_waits(f.host))
    """When an inference engine had nothing to run."""

    captures = fact(lambda f: find_captures(f.events, f.recorded_steps))
    """Captures of CUDA and HIP graphs."""

    links = fact(lambda f: find_links(f.host, f.work, f.host_time.blocking))
    records_first_call = fact(lambda f: is_first_call(f.work))
    """Pairs of events of which the first leads to the second."""

    unrecorded_graphs = fact(lambda f: unrecorded_graphs(f.work, f.recorded_steps, f.recording.end_ns))
    """CUDA graph launches of the recording with missing kernels."""

    lost_work = fact(lambda f: find_lost_work(f.host, f.work, f.captures.launches, f.recording.end_ns))
    """Kernel launches of the recording without a kernel."""

    @cached_property
    def whole_graphs(self) -> WholeGraphs:
        """CUDA graphs of the busiest device that were recorded as one event each."""
        if self.device is None:
            return WholeGraphs()
        return whole_graphs(self.work, self.device.id, self.window)

    @cached_property
    def gpu_times(self) -> list[GpuTime]:
        """Busy and idle time of every device with work of some duration, the busiest first."""
        lost = merged(self.unrecorded_graphs.holes, self.lost_work.holes)
        return find_gpu_times(self.busy, self.work, self.recorded_window, self.host_time, lost)

    @cached_property
    def steady(self) -> Steady:
        """The part of the recorded window that verdict, costs and savings are over."""
        window, steps = self._whole
        if not self.gpu_times:
            return all_of(window, steps, self.borders_ns)
        work = self.work
        worked = Window(int(work.start_ns.min()), int(work.end_ns.max()))
        ledger = self.gpu_times[0].ledger
        begins_ns = window.start_ns if len(steps) else start_of_one(work, window, ledger)
        return steady_part(window, steps, self.borders_ns, worked, ledger, begins_ns, alike=not self.engine)

    @cached_property
    def borders_ns(self) -> Int64:
        """Borders of all whole steps, shape (k + 1,); none without steps."""
        steps = self._whole[1]
        return step_borders(steps, self.work) if len(steps) else np.zeros(0, np.int64)

    @cached_property
    def _whole(self) -> tuple[Window, Steps]:
        """The recorded window and steps, without those at both ends whose kernels were lost."""
        window, steps = self.recorded_window, self.all_steps
        if not self.gpu_times or self.inferred_steps is not None:
            return window, steps
        return without_lost_ends(window, steps, self.lost_work, self.gpu_times[0].ledger, self.work)

    @property
    def window(self) -> Window:
        """The step window: the steady part of the recorded window."""
        return self.steady.window

    @property
    def steps(self) -> Steps:
        """The steps in the step window, marked or inferred."""
        return self.steady.steps

    @cached_property
    def host_window(self) -> Window:
        """When the host ran the steps of the step window, which it may do ahead of the GPU; without steps,
        the step window itself."""
        if not len(self.steps):
            return self.window
        return Window(int(self.steps.start_ns[0]), int(self.steps.end_ns[-1]))

    @property
    def step_time(self) -> StepTime:
        """How long a step takes, in ns."""
        return step_time(np.diff(self.steady.borders_ns))

    @cached_property
    def main_thread_spans(self) -> CauseSpans:
        """What the main thread did in the host window: spans in order of time that cover it exactly."""
        # The marks of a memory snapshot say when a step ran, and nothing about what a thread did.
        return self.main_thread_over(self.host_window if self.trace.kind == "trace" else Window(0, 0))

    freeing = fact(lambda f: find_freeing(f.trace.memory, f.main_thread_spans))
    """When the main thread frees large blocks of host memory, between operators."""

    def main_thread_over(self, window: Window) -> CauseSpans:
        """What the main thread did in a window: spans in order of time that cover it exactly."""
        spans = self.host_time.main_thread_spans(window)
        return spans if self.gpu_times else cpu_thread(spans, self.host, under_way(self.host))

    @cached_property
    def step_times(self) -> MeasuredSteps:
        """All whole steps, marked or inferred, with what they consist of."""
        steps = self._whole[1]
        if not self.gpu_times:
            return measure_on_host(steps, self.main_thread_spans, self.events)
        return measure_on_device(steps, self.borders_ns, self.work, self.gpu_times[0])

    # devices in the step window

    @cached_property
    def devices(self) -> list[DeviceFacts]:
        """Every device with work of some duration, the busiest first."""
        of_trace = self.trace.metadata, self.work, self.host, self.steady, self.inferred_steps
        masks = self.launches.in_window, self.communication, self.recomputed
        trace = TraceAround(*of_trace, self.stream_waits, self.captured, self.engine, *masks)
        return [DeviceFacts(time, trace) for time in self.gpu_times]

    @property
    def device(self) -> DeviceFacts | None:
        """The busiest device, which verdicts are about; None when no GPU work was recorded."""
        return next(iter(self.devices), None)

    @property
    def gpu(self) -> DeviceFacts:
        """The busiest device, for what is asked only where there is one."""
        return self.devices[0]

    # what the host does, and what it waits for

    @cached_property
    def launches(self) -> LaunchFacts:
        ledgers = [time.ledger for time in self.gpu_times]
        windows = self.recording, self.steady, self.host_window
        return LaunchFacts(self.work, self.host_time, *windows, self.main_thread_spans, ledgers)

    @cached_property
    def host_work(self) -> HostWork:
        calls, on_cpu = self.launches.calls, not self.gpu_times
        return HostWork(self.work, self.host_time, calls, self.recorded_steps, on_cpu=on_cpu)

    job = fact(lambda f: job_kind(f.host))

    @property
    def on_cpu(self) -> bool:
        """Whether nothing in the trace hints at the use of an accelerator: the job computes on the CPU."""
        return self.device is None and not self.recorded.unread_accelerator and not self.gpu_use.possible

    @property
    def computes_on(self) -> Literal["gpu", "cpu", "unseen"]:
        """Where the job computes. unseen: maybe on a GPU, or another accelerator, that was not recorded."""
        if self.device is not None:
            return "gpu"
        return "cpu" if self.on_cpu else "unseen"

    @cached_property
    def gpu_use(self) -> GpuUse:
        """Signs that the job used a GPU whose activity the trace lacks; none where the trace has a GPU's."""
        if self.device is not None:
            return GpuUse()
        spans = self.main_thread_spans
        in_operators = np.isin(spans.cause, np.array((Cause.DISPATCH, Cause.ALLOCATOR), np.uint8))
        spent_ns = int((spans.end_ns - spans.start_ns)[in_operators].sum())
        launches = sum(number for _, number in self.launches.calls.count_by_name(LAUNCH_CALL))
        return find_gpu_use(self.trace, self.host, launches, self.window, spent_ns)

    stream_waits = fact(lambda f: stream_waits(f.events))
    streams = fact(lambda f: len(np.unique(f.work.stream_key)))
    """Number of streams with GPU work, of all devices."""

    has_ranks = fact(lambda f: bool(f.trace.metadata.distributed) or bool(f.communication.any()))
    """Whether the job may have several ranks: the recorder says so, or it communicates."""

    @cached_property
    def serving(self) -> Serving | None:
        """What the busiest device did in the engine steps of the step window; None without either."""
        if not self.engine or self.device is None:
            return None
        chosen = np.flatnonzero(np.isin(self.engine.steps.start_ns, self.steps.start_ns))
        borders_ns = self.steady.borders_ns
        if len(self.engine) == 1:  # over the step window, as all other figures are
            chosen, borders_ns = np.arange(1), np.array([self.window.start_ns, self.window.end_ns])
        return find_serving(self.engine, chosen, borders_ns, self.host, self.work, self.device.time)

    @cached_property
    def host_lead(self) -> HostLead | None:
        """The host's lead as the recording began, and later; None if its steps do not show one."""
        if not len(self.step_times) or not self.gpu_times:
            return None
        if len(set(self.engine.kind.tolist())) > 1:
            return None  # while the GPU is at prompts, any host gets ahead
        return find_host_lead(self.step_times.on_host, self.work, self.gpu_times[0])

    @cached_property
    def replay(self) -> Replay:
        blocking, full_queue = self.host_time.blocking, self.host_time.full_queue.call
        steps, borders_ns = self.steps, self.steady.borders_ns
        if not len(steps):
            borders_ns = np.array([self.window.start_ns, self.window.end_ns])
            steps = Steps([""], borders_ns[:1], borders_ns[1:])
        return Replay(self.work, self.communication, blocking, full_queue, steps, borders_ns)

    @cached_property
    def unslowed(self) -> Unslowed:
        """The step window without the recorder, if the replay can be trusted."""
        calls, cost = self.replay.calls, self.host_work.recorder_cost
        spent = (
            Spent(cost.within(calls.free_from_ns, calls.start_ns, each), each.call)
            for each in (LEAST, LIKELY, MOST)
        )
        return find_unslowed(self.replay, *spent)

    @property
    def unprofiled_share(self) -> float:
        """How long the step window likely takes without the recorder, as a share of the recorded time."""
        return self.unprofiled_shares[1]

    @cached_property
    def unprofiled_shares(self) -> tuple[float, float, float]:
        """The same at least, most likely, and at most. Without a GPU, all are the most likely one."""
        if self.device is None or not self.window.duration_ns:
            start_ns, end_ns = np.array([self.window.start_ns]), np.array([self.window.end_ns])
            return (self.without_recorder(Intervals(start_ns, end_ns)),) * 3
        found, recorded_ns = self.unslowed, max(1, self.unslowed.recorded_ns)
        return found.least_ns / recorded_ns, found.likely_ns / recorded_ns, found.most_ns / recorded_ns

    def without_recorder(self, time: Intervals) -> float:
        """How long these stretches of a CPU's main thread take without the recorder, as a share."""
        return 1 - self.host_work.recorder_cost.spent_ns(time, self.likely_on_cpu) / max(1, time.total)

    @property
    def likely_on_cpu(self) -> EventCosts:
        """What recording an event most likely costs a job without a GPU."""
        return LIKELY_ON_CPU[self.recorded.shapes]

    @cached_property
    def captured(self) -> CapturedGraphs | None:
        """What the captures of graphs say about their kernels; None without captures."""
        batches = BatchSizes(self.engine.steps.start_ns, self.engine.size)
        return find_captured(self.work, self.host, self.trace.captures, batches)

    call_tree = fact(lambda f: CallTree(f.host, f.work))
    """Host calls of the whole recording, merged where they have the same path, with their GPU work."""

    # kernels

    recomputed = fact(lambda f: recomputed(f.host))
    """Mask of the events in forward passes that ran again inside of backward, shape (n,)."""

    @property
    def exposure(self) -> CollectiveExposure:
        """Collectives of the step window, of the busiest device; without one, of the CPU's back ends."""
        return self.exposure_on(self.device)

    def exposure_on(self, device: DeviceFacts | None) -> CollectiveExposure:
        """Collectives of the step window on a device, or of the CPU's back ends."""
        key = NONE if device is None else device.id
        if key not in self._exposure:
            self._exposure[key] = self._find_exposure(device)
        return self._exposure[key]

    def _find_exposure(self, device: DeviceFacts | None) -> CollectiveExposure:
        host, spans = self.host, self.main_thread_spans
        if device is None:
            calls = on_cpu(host, self.window, self.trace.metadata)
            return exposure_on_cpu(host, calls, self.steps.start_ns, spans)
        calls = on_device(host, device.kernels)
        borders_ns = self.steady.borders_ns
        return exposure_on_device(host, calls, device.busy, self.work, self.window, borders_ns, spans)

    # memory

    memory_context = fact(lambda f: memory_context(f.trace.memory, f.host, f.transfers))

    @cached_property
    def memory(self) -> list[DeviceMemory]:
        """Memory of each device, the GPU with the highest peak first, the CPU last."""
        steps = self.step_times.on_host
        idle_ns = {d.id: d.ledger.by_cause(d.window).get(Cause.ALLOCATOR, 0) for d in self.devices}
        return device_memory(self.trace, self.memory_context, steps, idle_ns)

    @property
    def gpu_memory(self) -> list[DeviceMemory]:
        return [memory for memory in self.memory if not memory.is_cpu]

    def memory_of(self, device: int) -> DeviceMemory | None:
        return next((memory for memory in self.memory if memory.device == device), None)
