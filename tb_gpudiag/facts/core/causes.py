"""The closed lists of idle causes and triggers."""

from __future__ import annotations

from enum import IntEnum


class Cause(IntEnum):
    """Why a GPU had nothing to do, in the order in which causes are shown."""

    INPUT = 0  # the host fetched data
    COMPILE = 1  # the host compiled, captured or loaded GPU code
    SYNC = 2  # the host sat in a call that waits for the GPU
    ALLOCATOR = 3  # the host asked the driver for memory, or gave it back
    COLLECTIVE = 4  # the host was inside a collective operation
    PYTHON = 5  # the host ran user code between operators
    DISPATCH = 6  # the host was inside an operator, on its way to a launch
    LAUNCH = 7  # the host was inside the launch call
    LATENCY = 8  # the launch call had returned; the GPU took its turnaround
    QUEUED = 9  # work was queued: a dependency, another stream, or nothing that this trace shows
    UNLINKED = 10  # the work that ended the gap has no launch in the trace
    PROFILER = 11  # the recording itself
    INITIALIZATION = 12  # first-run work: contexts, libraries, searches, lazy loading
    UNRECORDED = 13  # the GPU was still busy with work from before the recording

    @property
    def label(self) -> str:
        return self.name.lower()


class Trigger(IntEnum):
    """What let the queue run dry."""

    DRAINED = 0  # a blocking call returned just before the gap or within it: the queue was emptied on purpose
    STARVED = 1  # the host never got ahead
    QUEUED = 2  # it was not dry
    UNKNOWN = 3  # no launch is known

    @property
    def label(self) -> str:
        return self.name.lower()
