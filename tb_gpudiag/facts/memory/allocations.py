"""Allocations: when each one was freed, and who made it."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Int32, Int64
from tb_gpudiag.facts.memory.context import MemoryContext
from tb_gpudiag.facts.memory.curve import Curve
from tb_gpudiag.trace.events import MemoryEvents
from tb_gpudiag.vocabulary.recorded import MemoryAction


class Allocations:
    """Allocations of one device in order of time, shape (a,) each. Positions are indices into the device's
    curve.

    event: index of its event in Trace.memory.
    position: position of that event.
    freed: position of the event that ended it; NONE if it was alive at the end.
    free: positions of all frees.
    early_free: positions of the frees of memory that was allocated before the recording, shape (f,).
    unseen_free: indices of allocations whose address was allocated again without a recorded free, shape (u,).
    paired: False without addresses (old traces), which do not say what a free freed. Then `freed` is NONE and
    `early_free` and `unseen_free` are empty.
    """

    def __init__(self, memory: MemoryEvents, curve: Curve, context: MemoryContext) -> None:
        action = memory.action[curve.event]
        address = memory.address[curve.event]
        self._memory, self._curve, self._context = memory, curve, context
        self.position: Int64 = np.flatnonzero(action == MemoryAction.ALLOCATE)
        self.event: Int64 = curve.event[self.position]
        self.free: Int64 = np.flatnonzero(action == MemoryAction.FREE)
        self.paired = bool(address.any())
        freed, early = (
            pair(action, address, memory.bytes[curve.event])
            if self.paired
            else (np.full(len(action), NONE, np.int64), np.zeros(0, np.int64))
        )
        self.freed: Int64 = freed[self.position]
        self.early_free: Int64 = early
        ended = self.freed[self.freed != NONE]
        self.unseen_free: Int64 = np.flatnonzero(self.freed != NONE)[action[ended] == MemoryAction.ALLOCATE]

    def __len__(self) -> int:
        return len(self.position)

    @cached_property
    def time_ns(self) -> Int64:
        return self._memory.time_ns[self.event]

    @cached_property
    def bytes(self) -> Int64:
        return self._memory.bytes[self.event]

    @cached_property
    def freed_ns(self) -> Int64:
        """NONE if alive at the recording's end."""
        return np.where(self.freed == NONE, NONE, self._curve.time_ns[self.freed])

    @cached_property
    def early_free_bytes(self) -> Int64:
        return -self._memory.bytes[self._curve.event[self.early_free]]

    @cached_property
    def free_ns(self) -> Int64:
        return self._curve.time_ns[self.free]

    @cached_property
    def free_bytes(self) -> Int64:
        return -self._memory.bytes[self._curve.event[self.free]]

    @cached_property
    def operator(self) -> Int64:
        """Event of the operator that wanted the memory, or NONE: see MemoryContext.operator."""
        return self._context.operator[self.event]

    @cached_property
    def module(self) -> Int64:
        """Event of the nearest nn.Module, or NONE; in backward the forward operator's."""
        return self._context.module[self.event]

    @cached_property
    def place(self) -> Int64:
        """Number of the user's frame (see Host.frame), or NONE; in backward the forward operator's."""
        return self._context.place[self.event]

    @cached_property
    def stack(self) -> Int32:
        """Index into MemoryEvents.stacks, or NONE. Only snapshots have stacks."""
        return self._memory.stack[self.event]

    def alive(self, position: int) -> Int64:
        """Return the indices of the allocations that are alive after the event at this position."""
        made = int(np.searchsorted(self.position, position, side="right"))
        kept = (self.freed[:made] == NONE) | (self.freed[:made] > position)
        return np.flatnonzero(kept)


def pair(action: npt.NDArray[np.uint8], address: npt.NDArray[np.uint64], size: Int64) -> tuple[Int64, Int64]:
    """Pair the allocations of one device with the events that ended them, by address.

    Arguments are events in order of time, shape (m,) each. Returns the index of the event that ended each
    allocation (NONE for allocations that never ended, and for other events), shape (m,), and the indices of
    frees without a recorded allocation. Where an address is allocated twice without a free in between, the
    free was not recorded: the first allocation ended at the latest when the second one was made.
    """
    freed = np.full(len(action), NONE, np.int64)
    chosen = np.flatnonzero((action == MemoryAction.ALLOCATE) | (action == MemoryAction.FREE))
    order = chosen[np.argsort(address[chosen], kind="stable")]
    makers = order[action[order] == MemoryAction.ALLOCATE]
    # A second round, because two threads can free and allocate one address within a clock tick, and the
    # events be in the wrong order.
    for _ in range(2):
        first, second = order[:-1], order[1:]
        ends = (action[first] == MemoryAction.ALLOCATE) & (action[second] == MemoryAction.FREE)
        ends &= (address[first] == address[second]) & (size[first] == -size[second])
        freed[first[ends]] = second[ends]
        left = ~(np.r_[ends, False] | np.r_[False, ends])
        order = order[left[: len(order)]]
    again = (address[makers[1:]] == address[makers[:-1]]) & (freed[makers[:-1]] == NONE)
    freed[makers[:-1][again]] = makers[1:][again]
    return freed, np.sort(order[action[order] == MemoryAction.FREE])
