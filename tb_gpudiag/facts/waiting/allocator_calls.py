"""Calls that get device memory from the driver and return it: how many, in which order, and from where."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.matching import match, match_some
from tb_gpudiag.vocabulary.api_calls import DEVICE_ALLOCATION, DEVICE_FREE
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES
from tb_gpudiag.vocabulary.torch_frames import EMPTY_CACHE


@dataclass(frozen=True)
class AllocatorCalls:
    """The device allocations and frees that begin in a window.

    turns: how often an allocation follows a free or the other way around, in time order over all threads.
    """

    allocations: int
    frees: int
    turns: int
    frees_in_empty_cache: int
    empty_cache_calls: int


def allocator_calls(host: Host, window: Window) -> AllocatorCalls:
    """Count the calls of the window."""
    events = host.events
    inside = (events.start_ns >= window.start_ns) & (events.start_ns < window.end_ns)
    calls = events.where(*CALL_CATEGORIES)
    calls = calls[inside[calls]]
    frees, allocates = match_some(events, DEVICE_FREE, calls), match_some(events, DEVICE_ALLOCATION, calls)
    in_order = frees[frees | allocates]
    empty_cache = match(events, EMPTY_CACHE) & (host.tree.depth >= 0)
    outermost = host.tree.outermost(empty_cache) == np.arange(len(events))
    return AllocatorCalls(
        int(allocates.sum()),
        int(frees.sum()),
        int((in_order[1:] != in_order[:-1]).sum()),
        int(host.tree.under(empty_cache)[calls[frees]].sum()),
        int((empty_cache & outermost & inside).sum()),
    )
