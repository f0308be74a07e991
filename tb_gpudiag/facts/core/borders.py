"""Where one step ends and the next begins, for a host that may be ahead of its GPU."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.vocabulary import levels

# Where more of the later work has no launch in the trace, work without one is not from before the recording:
# the recorder does not trace all launches.
MOST_UNLINKED = levels.SIZEABLE


def step_borders(steps: Steps, work: Work) -> Int64:
    """Return the borders of steps that follow each other, shape (k + 1,).

    A step begins when the host has begun it and the GPU has done all work launched before it, also before
    the recording, as far as the trace has it. A host that runs ahead does not show how long steps take, and
    the GPU's work alone leaves out what the host does before the first launch and after the last one.
    """
    starts: Int64 = np.r_[steps.start_ns, steps.end_ns[-1:]]
    linked = work.by_launch
    launched: Int64 = np.searchsorted(work.launch_start_ns[linked], starts)
    done = np.r_[np.iinfo(np.int64).min, np.maximum.accumulate(work.end_ns[linked])]
    borders = np.maximum(starts, done[launched])
    borders[0] = max(borders[0], _queued_before(work, linked[launched[0] : launched[1]]))
    if borders[0] >= borders[-1]:  # the GPU did nothing else meanwhile
        borders[0] = starts[0]
    return np.maximum.accumulate(borders)


def _queued_before(work: Work, own: Int64) -> int:
    """Return when the work from before the recording was done that precedes this work on its stream: other
    streams may run ahead."""
    queued = np.flatnonzero(~work.linked)
    if not len(own) or not len(queued):
        return 0
    streams, of_ours = np.unique(work.stream_key[own], return_inverse=True)
    begins = np.full(len(streams), np.iinfo(np.int64).max)
    np.minimum.at(begins, of_ours, work.start_ns[own])
    at = np.minimum(np.searchsorted(streams, work.stream_key[queued]), len(streams) - 1)
    before = (streams[at] == work.stream_key[queued]) & (work.start_ns[queued] < begins[at])
    done_ns = int(work.end_ns[queued[before]].max(initial=0))
    later = work.start_ns >= done_ns
    return done_ns if int((later & ~work.linked).sum()) <= MOST_UNLINKED * int(later.sum()) else 0
