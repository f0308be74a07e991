"""Causes and triggers of idle time: two closed lists."""

from __future__ import annotations

from enum import IntEnum


class Cause(IntEnum):
    """Why a GPU was idle, in the order in which causes are shown."""

    INPUT = 0  # the host fetched data
    COMPILE = 1  # the host compiled, captured or loaded GPU code
    SYNC = 2  # the host was blocked in a call that waits for the GPU
    ALLOCATOR = 3  # the host got memory from the driver or returned it
    COLLECTIVE = 4  # the host was inside a collective operation
    PYTHON = 5  # the host ran user code between operators
    DISPATCH = 6  # the host was inside an operator, on its way to a launch
    LAUNCH = 7  # the host was inside the launch call
    LATENCY = 8  # the launch call had returned; the GPU took its usual turnaround
    QUEUED = 9  # work was queued: a dependency, another stream, or a cause that the trace does not show
    UNLINKED = 10  # the work that ended the gap has no launch in the trace
    PROFILER = 11  # the profiler itself
    INITIALIZATION = 12  # first-run work: contexts, libraries, searches, lazy loading
    UNRECORDED = 13  # the GPU was busy with work that the trace lacks: from before it, or of a CUDA graph

    @property
    def label(self) -> str:
        return self.name.lower()


class Trigger(IntEnum):
    """Why the launch queue was empty when a gap began."""

    DRAINED = 0  # a blocking call that returned just before the gap or within it had emptied the queue
    STARVED = 1  # the host never got ahead of the GPU
    QUEUED = 2  # it was not empty
    UNKNOWN = 3  # the launch is not known

    @property
    def label(self) -> str:
        return self.name.lower()
