"""What one GPU is and did: its busy time, its idle ledger, its kernels, and what these reach."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.device_properties import DeviceProperties, device_properties, of_architecture
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, Window, clip, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import GpuTime, TimeAccount
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.core.steady import Steady, step_borders
from tb_gpudiag.facts.kernels.kernels import Kernels, UnfusedAttention, unfused_attention
from tb_gpudiag.facts.kernels.mfu import Mfu, find_mfu
from tb_gpudiag.facts.kernels.multiprocessors import Multiprocessor, multiprocessor
from tb_gpudiag.facts.kernels.peaks import Peaks, peaks_of
from tb_gpudiag.facts.kernels.roofline import Roofline, roofline
from tb_gpudiag.facts.launching.graph_nodes import CapturedGraphs, NodeGaps, node_gaps
from tb_gpudiag.facts.stepping.engine_steps import EngineSteps
from tb_gpudiag.facts.stepping.inferred import InferredSteps
from tb_gpudiag.facts.waiting.stream_waits import Awaited, StreamWaits, count_awaited
from tb_gpudiag.trace.events import Metadata
from tb_gpudiag.vocabulary.kernel_names import AMPERE, amd_architecture, least_capability
from tb_gpudiag.vocabulary.operators import FOR_MANY_TENSORS


class TraceAround(NamedTuple):
    """What the facts of a GPU need of its trace. No Facts: those hold the GPU's, and a circle of objects
    would keep the trace in memory.

    launched: mask of the work whose launch belongs to the step window. recomputed: see mfu.recomputed.
    """

    metadata: Metadata
    work: Work
    host: Host
    steady: Steady
    inferred: InferredSteps | None
    waits: StreamWaits
    captured: CapturedGraphs | None
    batches: EngineSteps
    launched: Bool
    communication: Bool
    recomputed: Bool


class DeviceFacts:
    """One GPU that did some work in the trace, over the step window. Masks of kernels have shape (k,)."""

    def __init__(self, time: GpuTime, trace: TraceAround) -> None:
        self._trace = trace
        self.time = time
        self.id = time.device
        self.busy = time.busy
        self.ledger = time.ledger
        self.window = trace.steady.window

    # the GPU

    @cached_property
    def properties(self) -> DeviceProperties:
        """What the trace states of the GPU or, if it does not, the names of its kernels show."""
        found = device_properties(self._trace.metadata, self.id)
        if found.name or found.compute_capability or found.architecture:
            return found
        return of_architecture(found, amd_architecture(self._kernel_names))

    @property
    def name(self) -> str:
        return self.properties.name

    @cached_property
    def compute_capability(self) -> tuple[int, int] | None:
        """An NVIDIA GPU's, such as (8, 0), or the least one that runs kernels with such names where the trace
        does not name the GPU; None for others, and where neither says it."""
        known = self.properties
        if known.name or known.compute_capability or known.architecture:
            return known.compute_capability
        return least_capability(self._kernel_names)

    @property
    def multiplies_bf16_as_fp32(self) -> bool:
        """Whether this is an NVIDIA GPU before Ampere: its tensor cores, if any, take FP16 only."""
        capability = self.compute_capability
        return capability is not None and capability < AMPERE

    @cached_property
    def _kernel_names(self) -> list[str]:
        work, events = self._trace.work, self._trace.work.events
        used = np.unique(events.name[work.event[work.device == self.id]])
        return [events.names[i] for i in used.tolist()]

    @property
    def multiprocessor(self) -> Multiprocessor | None:
        """What one of the multiprocessors has; None where the trace does not say."""
        return multiprocessor(self.properties)

    @cached_property
    def peaks(self) -> Peaks | None:
        """None where the trace does not say which GPU it is."""
        return peaks_of(self.properties)

    # its time

    @property
    def span(self) -> Window:
        """The GPU span: first GPU event's start to the last one's end."""
        return self.busy.span

    @cached_property
    def window_account(self) -> TimeAccount:
        """The step window as one slice: the verdict and every share are computed from it."""
        return self.time.of_window(self.window)

    @cached_property
    def account(self) -> TimeAccount:
        """Its time step by step, in the step window."""
        steady = self._trace.steady
        return self.time.account(steady.steps.names, steady.borders_ns[:-1], steady.borders_ns[1:])

    @property
    def repetitions(self) -> TimeAccount:
        """Its time in each inferred step of the window, or in each repetition that may be a part of one."""
        inferred = self._trace.inferred
        if inferred is None or len(self._trace.steady.steps):
            return self.account
        borders_ns = step_borders(inferred.steps, self._trace.work)
        return self.time.account(inferred.steps.names, borders_ns[:-1], borders_ns[1:])

    # its idle time

    @cached_property
    def lost(self) -> Intervals:
        """Idle time in the step window in which work may have run that the trace has only the launch of."""
        some = self.ledger.lost
        found = union(self.ledger.start_ns[some], self.ledger.end_ns[some])
        return clip(found, self.window.start_ns, self.window.end_ns)

    def node_gaps(self, gap: Int64, length_ns: Int64) -> NodeGaps:
        """Describe idle time between the nodes of graphs, in these gaps."""
        work, launched = self._trace.work, self._trace.launched
        return node_gaps(work, launched, self.id, self.ledger.gaps, gap, length_ns)

    def just_launched(self, gap: Int64) -> Bool:
        """Mask of these gaps that work ended which was launched at most as long before the gap as the gap is
        long, shape of `gap`: the host does not run ahead."""
        gaps = self.ledger.gaps
        launch, start_ns = gaps.launch[gap], gaps.start_ns[gap]
        lead_ns = start_ns - np.where(launch == NONE, start_ns, self._trace.work.events.end_ns[launch])
        return (launch != NONE) & (lead_ns <= gaps.end_ns[gap] - start_ns)

    def awaited(self, gaps: Int64) -> list[Awaited]:
        """Return what the work that ended these gaps had to wait for."""
        work, ended_by = self._trace.work, self.ledger.gaps.ended_by[gaps]
        return count_awaited(work.events, self._trace.waits.awaited(work, ended_by[ended_by != NONE]))

    # its kernels

    @cached_property
    def kernels(self) -> Kernels:
        """The GPU's work in the step window, by kernel family."""
        return Kernels(self.busy.work, self.window, self._trace.work, self.properties.multiprocessors)

    @cached_property
    def naming(self) -> tuple[Host, Kernels]:
        """All that is known about the origins of the kernels: the host whose events they are, and the kernels
        with them. Those in graphs come from calls that were captured before."""
        captured = self._trace.captured
        if captured is None:
            return self._trace.host, self.kernels
        of_work = np.searchsorted(self._trace.work.event, self.kernels.event)
        return captured.host, self.kernels.with_origin(captured.origin[of_work])

    @property
    def kernels_for_many_tensors(self) -> Bool:
        """Mask of those of operators for many tensors (optimizers)."""
        operator = self.kernels.operators(self._trace.host)
        return (operator != NONE) & match(self._trace.work.events, FOR_MANY_TENSORS)[operator]

    @cached_property
    def unfused_attention(self) -> UnfusedAttention:
        return unfused_attention(self.kernels, self._trace.host)

    @cached_property
    def roofline(self) -> Roofline:
        """Operators against the GPU's peaks."""
        host, kernels = self.naming
        lengths = self._trace.batches.lengths(kernels.launched_ns)
        return roofline(kernels, host, self.peaks, self._of_naming(self._trace.recomputed), lengths)

    @cached_property
    def mfu(self) -> Mfu:
        """What the GPU makes of its stated peak."""
        host, kernels = self.naming
        masks = self._of_naming(self._trace.communication), self._of_naming(self._trace.recomputed)
        borders_ns = self._trace.steady.borders_ns
        return find_mfu(kernels, self.time, self.window, host, self.roofline, *masks, borders_ns)

    def _of_naming(self, mask: Bool) -> Bool:
        """Return a mask of events as one of the events of `naming`."""
        return np.r_[mask, np.zeros(len(self.naming[0].events) - len(mask), np.bool_)]
