"""Compilation: its kinds, and which functions torch.compile compiled, how often, and when."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match, match_some
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.core.threads import ThreadAxis
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import kernel_names, marks
from tb_gpudiag.vocabulary.marks import COMPILED_REGION


class CompileKind(IntEnum):
    """How GPU code is generated or loaded. Of nested kinds, the first one in this order is the reason."""

    DYNAMO = 0  # torch.compile
    CAPTURE = 1  # of a CUDA graph
    EXTENSION = 2  # C++ or CUDA source
    AUTOTUNE = 3  # Triton kernels are benchmarked against each other
    TRITON = 4
    LOADING = 5  # the driver loads a module, as at a kernel's first use


_NAMES = (
    (CompileKind.DYNAMO, marks.DYNAMO),
    (CompileKind.CAPTURE, marks.GRAPH_CAPTURE),
    (CompileKind.EXTENSION, marks.EXTENSION),
    (CompileKind.AUTOTUNE, marks.AUTOTUNE),
    (CompileKind.TRITON, marks.TRITON),
)


@dataclass(frozen=True)
class CompiledFunction:
    """One compilation of one function by torch.compile."""

    event: int
    duration_ns: int
    function: str  # torch's number for it; "" where the trace does not say
    before: int  # how often it had been compiled before; NONE where the trace does not say
    step: str  # the step in which it began; "" outside of steps


class CompileWork(NamedTuple):
    """What host events are compiling. Shape (k,) each."""

    kind: Int64  # CompileKind
    call: Int64  # the outermost span of the compilation; of LOADING the event itself


def compile_work(host: Host, event: Int64) -> CompileWork:
    """Find what host events are compiling. event: with Cause.COMPILE, or NONE, shape (k,)."""
    kinds, outermost = host.purpose(_NAMES, CompileKind.LOADING)
    kind = np.where(event == NONE, CompileKind.LOADING, kinds[event])
    return CompileWork(kind, np.where(kind == CompileKind.LOADING, event, outermost[event]))


def is_first_call(work: Work) -> bool:
    """Whether torch.compile wrote kernels, and each of them runs once in the recording. Without the host's
    operators, nothing else shows that a compilation was recorded."""
    own = work.event[match_some(work.events, kernel_names.INDUCTOR, work.event)]
    return len(own) > 0 and len(np.unique(work.events.name[own])) == len(own)


def compiled_functions(host: Host, steps: Steps, window: Window) -> list[CompiledFunction]:
    """Find the compilations that begin in the window, in order. A function that has just been compiled runs
    next on its thread, and the name of that run says which function it is."""
    events = host.events
    found = match(events, marks.COMPILED_FUNCTION)
    if not found.any():
        found = match(events, marks.COMPILED_FUNCTION_FRAME)
    found &= window.contains(events.start_ns)
    compiled = np.flatnonzero(host.tree.outermost_of(found))
    region = _next_region(host, compiled)
    step = steps_at(steps, events.start_ns[compiled])
    result = []
    for event, run, name in zip(compiled.tolist(), region.tolist(), step, strict=True):
        parsed = COMPILED_REGION.fullmatch(events.names[events.name[run]]) if run != NONE else None
        function, before = (parsed["function"], int(parsed["before"][:9])) if parsed else ("", NONE)
        result.append(CompiledFunction(event, int(events.duration_ns[event]), function, before, name))
    return result


def _next_region(host: Host, compiled: Int64) -> Int64:
    """Find the first compiled function that begins on each compilation's thread, after its end and before the
    next compilation; NONE without one."""
    events = host.events
    regions = np.flatnonzero(match(events, COMPILED_REGION) & (host.tree.depth >= 0))
    times_ns = events.start_ns[regions], events.start_ns[compiled], events.end_ns[compiled]
    axis = ThreadAxis(*times_ns, threads=len(events.threads))
    starts = axis.places(events.thread[regions], events.start_ns[regions])
    order = np.argsort(starts, kind="stable")
    regions, starts = regions[order], starts[order]
    begins = np.sort(axis.places(events.thread[compiled], events.start_ns[compiled]))
    ends = axis.places(events.thread[compiled], events.end_ns[compiled])
    far = np.iinfo(np.int64).max
    until = np.r_[begins, far][np.searchsorted(begins, ends)]
    index = np.searchsorted(starts, ends)
    starts = np.r_[starts, far]
    same_thread = np.r_[events.thread[regions], NONE][index] == events.thread[compiled]
    return np.where((starts[index] < until) & same_thread, np.r_[regions, NONE][index], NONE)


def steps_at(steps: Steps, time: Int64) -> list[str]:
    """Return the step at each time; "" outside of steps."""
    order = np.argsort(steps.start_ns, kind="stable")
    at = np.searchsorted(steps.start_ns[order], time, side="right") - 1
    inside = (at >= 0) & (time < np.r_[steps.end_ns[order], 0][at])
    return [steps.names[order[i]] if within else "" for i, within in zip(at, inside, strict=True)]
