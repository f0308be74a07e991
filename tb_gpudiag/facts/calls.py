"""Calls into CUDA or HIP, counted: by name, and one device's launch calls."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tb_gpudiag.facts.launches import Work
from tb_gpudiag.facts.names import match
from tb_gpudiag.facts.steps import Window
from tb_gpudiag.trace.events import CALL_CATEGORIES, NONE, Bool, Events, Int64


@dataclass(frozen=True)
class LaunchCalls:
    """One device's launch calls that begin in a window, by their events' index. Shape (c,) each; a graph's
    launch is one call."""

    event: Int64
    duration_ns: Int64
    empty_queue: Bool  # as in launches.Work
    gpu_ns: Int64  # of all that it launched

    def __len__(self) -> int:
        return len(self.event)


class Calls:
    """The host's calls into the driver."""

    def __init__(self, events: Events, work: Work, blocking: Int64) -> None:
        """blocking: event indices of the calls that wait for the GPU (handover.HostTime.blocking)."""
        self._events = events
        self._work = work
        self._blocking = blocking

    def count_by_name(self, name: re.Pattern[str], window: Window | None = None) -> list[tuple[str, int]]:
        """(name, calls) of these names, in the window where one is given, most calls first."""
        events = self._events
        calls = events.where(*CALL_CATEGORIES)
        calls = calls[match(events, name)[calls]]
        if window is not None:
            starts = events.start_ns[calls]
            calls = calls[(starts >= window.start_ns) & (starts < window.end_ns)]
        number, count = np.unique(events.name[calls], return_counts=True)
        order = np.argsort(-count, kind="stable")
        return [(events.names[number[i]], int(count[i])) for i in order]

    @property
    def begin_work(self) -> bool:
        """Whether one of them had work on a GPU to begin, whether that is in the trace or not."""
        events = self._events
        return bool((events.correlation[events.where(*CALL_CATEGORIES)] > 0).any())

    def launches(self, device: int, window: Window) -> LaunchCalls:
        events, work = self._events, self._work
        some = np.flatnonzero(
            (work.launch != NONE)
            & (events.device[work.event] == device)
            & (work.launch_start_ns >= window.start_ns)
            & (work.launch_start_ns < window.end_ns)
        )
        calls, first, of_call = np.unique(work.launch[some], return_index=True, return_inverse=True)
        gpu_ns = np.zeros(len(calls), np.int64)
        np.add.at(gpu_ns, of_call, events.duration_ns[work.event[some]])
        return LaunchCalls(calls, events.duration_ns[calls], work.empty_queue[some[first]], gpu_ns)

    def waits_before_last_launch(self, window: Window) -> int:
        """How many waits for the GPU begin in the window before its last launch: one after that ends the
        recording, and no step."""
        starts, launched = self._events.start_ns[self._blocking], self._work.launch_start_ns
        last = launched[launched < window.end_ns].max(initial=0)
        return int(((starts >= window.start_ns) & (starts < last)).sum())
