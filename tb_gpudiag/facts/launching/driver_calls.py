"""Calls into CUDA or HIP: how many by name, and those that get device memory and return it."""

from __future__ import annotations

import re

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.matching import match, match_some
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.api_calls import DEVICE_ALLOCATION, DEVICE_FREE
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES
from tb_gpudiag.vocabulary.torch_frames import EMPTY_CACHE


class DriverCalls:
    """The host's calls into the driver."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def of(self, name: re.Pattern[str]) -> Int64:
        """Return the calls with matching names: event indices."""
        calls = self._events.where(*CALL_CATEGORIES)
        return calls[match_some(self._events, name, calls)]

    def count_by_name(self, name: re.Pattern[str], window: Window | None = None) -> list[tuple[str, int]]:
        """Count calls with matching names, in the window if one is given: (name, calls), most calls first."""
        events = self._events
        calls = self.of(name)
        if window is not None:
            starts = events.start_ns[calls]
            calls = calls[window.contains(starts)]
        number, count = np.unique(events.name[calls], return_counts=True)
        order = np.argsort(-count, kind="stable")
        return [(events.names[number[i]], int(count[i])) for i in order]


@dataclass(frozen=True)
class AllocatorCalls:
    """The device allocations and frees that begin in a window.

    turns: how often an allocation follows a free or the other way around, in time order over all threads.
    retries: how often an operator asks for memory, frees more blocks than it was given, and asks again, as
    PyTorch's allocator does when the driver has no memory left.
    """

    allocations: int
    frees: int
    turns: int
    retries: int
    frees_in_empty_cache: int
    empty_cache_calls: int


def allocator_calls(host: Host, window: Window) -> AllocatorCalls:
    events = host.events
    inside = window.contains(events.start_ns)
    calls = events.where(*CALL_CATEGORIES)
    calls = calls[inside[calls]]
    frees, allocates = match_some(events, DEVICE_FREE, calls), match_some(events, DEVICE_ALLOCATION, calls)
    in_order, operator = frees[frees | allocates], host.operator[calls[frees | allocates]]
    empty_cache = match(events, EMPTY_CACHE) & (host.tree.depth >= 0)
    return AllocatorCalls(
        int(allocates.sum()),
        int(frees.sum()),
        int((in_order[1:] != in_order[:-1]).sum()),
        _retries(in_order, operator),
        int(host.tree.under(empty_cache)[calls[frees]].sum()),
        int((host.tree.outermost_of(empty_cache) & inside).sum()),
    )


def _retries(frees: Bool, operator: Int64) -> int:
    """frees: which calls free, the others allocate; operator: that each is in, or NONE. In time order."""
    if not len(frees):
        return 0
    edge = np.flatnonzero(np.r_[True, (frees[1:] != frees[:-1]) | (operator[1:] != operator[:-1])])
    calls, frees, operator = np.diff(np.r_[edge, len(frees)]), frees[edge], operator[edge]
    before, here, after = slice(-2), slice(1, -1), slice(2, None)
    found = frees[here] & (operator[here] != NONE) & (calls[here] > calls[before])
    found &= (operator[before] == operator[here]) & (operator[after] == operator[here])
    return int(found.sum())
