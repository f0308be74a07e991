"""Memory context: what the thread did at the instant of each memory event."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import NONE, Int64, UInt8
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.core.transfers import Transfers
from tb_gpudiag.facts.memory.phase import Phase, phase_of_spans, phase_of_stack
from tb_gpudiag.trace.events import MemoryEvents
from tb_gpudiag.vocabulary.operators import GETS_MEMORY
from tb_gpudiag.vocabulary.recorded import Category


class MemoryContext:
    """Arrays over all memory events, shape (m,)."""

    def __init__(self, memory: MemoryEvents, host: Host, transfers: Transfers) -> None:
        self._memory, self._host, self._transfers = memory, host, transfers

    @cached_property
    def around(self) -> Int64:
        """Innermost host span on the event's thread at that instant, or NONE."""
        memory, activities = self._memory, self._host.activities
        # A snapshot says neither which thread set a mark nor which one allocated.
        sole = next(iter(activities.values())) if len(activities) == 1 else None
        found = np.full(len(memory), NONE, np.int64)
        order = np.argsort(memory.thread, kind="stable")
        cuts = np.flatnonzero(np.r_[True, np.diff(memory.thread[order]) != 0]) if len(order) else order
        for own in np.split(order, cuts[1:]) if len(order) else []:
            thread = int(memory.thread[own[0]])
            activity = sole if thread == NONE else activities.get(thread)
            if activity is None:
                continue
            time = memory.time_ns[own]
            at = np.searchsorted(activity.start_ns, time, side="right") - 1
            inside = (at >= 0) & (time < activity.end_ns[np.maximum(at, 0)])
            found[own[inside]] = activity.event[at[inside]]
        return found

    def _of(self, per_event: Int64) -> Int64:
        around = self.around
        if not len(per_event):
            return around
        return np.where(around == NONE, NONE, per_event[around])

    @cached_property
    def operator(self) -> Int64:
        """Event of the innermost operator, or NONE. Operators that only get memory for others (aten::empty
        and the like) count only if there is no other."""
        host = self._host
        does = (host.events.category == Category.CPU_OP) & ~match(host.events, GETS_MEMORY)
        wanted = self._of(host.tree.nearest_of(does))
        return np.where(wanted == NONE, self._of(host.operator), wanted)

    @cached_property
    def module(self) -> Int64:
        """Event of the nearest nn.Module, or NONE; in backward the forward operator's."""
        return self._of(self._host.module)

    @cached_property
    def place(self) -> Int64:
        """Number of the user's frame (see Host.frame), or NONE; in backward the forward operator's."""
        return self._of(self._host.place)

    @cached_property
    def phase(self) -> UInt8:
        """Phase of each event, in snapshots by its stack."""
        memory, around = self._memory, self.around
        found = np.full(len(memory), Phase.UNKNOWN, np.uint8)
        known = around != NONE
        if known.any():
            found[known] = phase_of_spans(self._host, self._transfers)[around[known]]
        if memory.stacks:
            of_stack = np.array([phase_of_stack(stack) for stack in memory.stacks], np.uint8)
            by_stack = np.where(memory.stack == NONE, Phase.UNKNOWN, of_stack[memory.stack])
            found = np.where(by_stack == Phase.UNKNOWN, found, by_stack).astype(np.uint8)
        return found
