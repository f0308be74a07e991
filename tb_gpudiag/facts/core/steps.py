"""Steps, and the windows that figures are over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.marks import STEP
from tb_gpudiag.vocabulary.recorded import Category


@dataclass(frozen=True)
class Steps:
    """The host's `ProfilerStep#N` spans in order of time, each name once. Shape (k,) each."""

    names: list[str]
    start_ns: Int64
    end_ns: Int64

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Window:
    """A stretch of the trace, [start_ns, end_ns)."""

    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


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
