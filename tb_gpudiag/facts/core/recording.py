"""What a trace recorded: its steps, over which time, and which kinds of data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.trace.events import Events, Trace
from tb_gpudiag.vocabulary.marks import STEP
from tb_gpudiag.vocabulary.recorded import UNREAD_ACCELERATORS, Category


@dataclass(frozen=True)
class Steps:
    """The host's `ProfilerStep#N` spans in order of time, each name once. Shape (k,) each."""

    names: list[str]
    start_ns: Int64
    end_ns: Int64

    def __len__(self) -> int:
        return len(self.names)


def find_steps(events: Events) -> Steps:
    """Find the steps on the host. Their copies on the GPU (`gpu_user_annotation`) are not steps."""
    chosen = np.flatnonzero(
        (events.category == Category.USER_ANNOTATION) & match(events, STEP) & (events.duration_ns > 0)
    )
    _, first = np.unique(events.name[chosen], return_index=True)
    chosen = chosen[np.sort(first)]
    return Steps(
        [events.names[i] for i in events.name[chosen]], events.start_ns[chosen], events.end_ns[chosen]
    )


def step_window(steps: Steps, recording: Window, launch_ns: Int64, work_end_ns: Int64) -> Window:
    """Return the window from the first step's start to the end of the last step and of the GPU work that the
    steps launched; without steps, the whole recording.

    launch_ns: when the launch of each piece of GPU work began, NONE if unknown, shape (g,).
    work_end_ns: when the work ended, shape (g,).
    """
    if not len(steps):
        return recording
    start, end = int(steps.start_ns.min()), int(steps.end_ns.max())
    launched = (launch_ns >= start) & (launch_ns < end)
    return Window(start, max(end, int(work_end_ns[launched].max(initial=end))))


@dataclass(frozen=True)
class Recorded:
    """Kinds of data that the trace contains, and so what can be known."""

    steps: bool
    operators: bool  # else only runtime calls show what the host did
    stacks: bool
    shapes: bool
    memory: bool
    flops: bool
    overhead: bool  # the GPU tracer's own work, such as allocating its buffers
    unread_accelerator: str = ""  # the kind of accelerator whose activity is in the trace and is not read


def find_recorded(trace: Trace, steps: Steps) -> Recorded:
    """Find out which kinds of data the trace contains."""
    events, metadata = trace.events, trace.metadata
    stacks = (
        bool((events.category == Category.PYTHON_FUNCTION).any())
        or bool((events.call_stack != NONE).any())
        or bool(trace.memory.stacks)
    )
    return Recorded(
        steps=len(steps) > 0,
        operators=bool((events.category == Category.CPU_OP).any()),
        stacks=stacks,
        shapes=metadata.record_shapes,
        memory=len(trace.memory) > 0,
        flops=metadata.with_flops,
        overhead=bool((events.category == Category.OVERHEAD).any()),
        unread_accelerator=next(
            (name for kind, name in UNREAD_ACCELERATORS.items() if (events.category == kind).any()), ""
        ),
    )


def recording_window(trace: Trace) -> Window:
    """Return the time from the first event's start to the last one's end; (0, 0) without events.

    Only host and GPU activity counts. A memory snapshot may have few marks or none, so its memory events
    count as well.
    """
    events = trace.events
    known = ~events.among(Category.OTHER, *UNREAD_ACCELERATORS)
    start_ns, end_ns = events.start_ns[known], events.end_ns[known]
    if not known.any() or trace.kind != "trace":
        time_ns = trace.memory.time_ns
        start_ns, end_ns = np.r_[start_ns, time_ns], np.r_[end_ns, time_ns]
    if not len(start_ns):
        return Window(0, 0)
    return Window(int(start_ns.min()), int(end_ns.max()))
