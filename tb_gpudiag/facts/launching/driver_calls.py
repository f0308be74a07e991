"""Counts of calls into CUDA or HIP."""

from __future__ import annotations

import re

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match_some
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES


class DriverCalls:
    """The host's calls into the driver."""

    def __init__(self, host: Host, work: Work, blocking: Int64) -> None:
        """blocking: event indices of the calls that wait for the GPU (handover.HostTime.blocking)."""
        self._host = host
        self._events = host.events
        self._work = work
        self._blocking = blocking

    def count_by_name(self, name: re.Pattern[str], window: Window | None = None) -> list[tuple[str, int]]:
        """Count calls with matching names, in the window if one is given: (name, calls), most calls first."""
        events = self._events
        calls = events.where(*CALL_CATEGORIES)
        calls = calls[match_some(events, name, calls)]
        if window is not None:
            starts = events.start_ns[calls]
            calls = calls[(starts >= window.start_ns) & (starts < window.end_ns)]
        number, count = np.unique(events.name[calls], return_counts=True)
        order = np.argsort(-count, kind="stable")
        return [(events.names[number[i]], int(count[i])) for i in order]

    @property
    def begin_work(self) -> bool:
        """Whether any call was to launch GPU work, even if that work is not in the trace."""
        events = self._events
        return bool((events.correlation[events.where(*CALL_CATEGORIES)] > 0).any())

    def waits_between_launches(self, window: Window) -> int:
        """Count the waits for the GPU between the window's first launch and its last. The profiler waits
        before and after the steps. Calls inside one operator are one wait, as in sync_sites."""
        starts, launched = self._events.start_ns[self._blocking], self._work.launch_start_ns
        launched = launched[(launched >= window.start_ns) & (launched < window.end_ns)]
        if not len(launched):
            return 0
        calls = self._blocking[(starts > launched.min()) & (starts < launched.max())]
        operator = self._host.operator[calls]
        return len(np.unique(np.where(operator == NONE, calls, operator)))
