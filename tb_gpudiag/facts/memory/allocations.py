"""Each allocation that was seen: when it was freed, and who made it."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from tb_gpudiag.facts.memory.context import MemoryContext
from tb_gpudiag.facts.memory.curve import Curve
from tb_gpudiag.trace.events import NONE, Int32, Int64, MemoryAction, MemoryEvents


class Allocations:
    """Of one device, in order of time, shape (a,) each. Positions are indices into the device's curve.

    event: its event in Trace.memory; position: that event's position; freed: the position of what freed it,
    NONE for what was alive at the end. Without addresses (old traces) nothing tells what a free gave back:
    then `paired` is False, `freed` is NONE and `early_free` is empty.
    free: positions of all frees.
    early_free: positions of the frees of what was allocated before the recording, shape (f,).
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
        """NONE: alive at the recording's end."""
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
        """The operator that wanted the memory, an event, or NONE: see MemoryContext.operator."""
        return self._context.operator[self.event]

    @cached_property
    def module(self) -> Int64:
        """The nearest nn.Module, an event, or NONE; in backward the forward operator's."""
        return self._context.module[self.event]

    @cached_property
    def place(self) -> Int64:
        """The user's frame: a number for Host.frame, or NONE; in backward the forward operator's."""
        return self._context.place[self.event]

    @cached_property
    def stack(self) -> Int32:
        """Index into MemoryEvents.stacks, or NONE: only snapshots have them."""
        return self._memory.stack[self.event]

    def alive(self, position: int) -> Int64:
        """Indices of the allocations that are alive after the event at this position."""
        made = int(np.searchsorted(self.position, position, side="right"))
        kept = (self.freed[:made] == NONE) | (self.freed[:made] > position)
        return np.flatnonzero(kept)


def pair(action: npt.NDArray[np.uint8], address: npt.NDArray[np.uint64], size: Int64) -> tuple[Int64, Int64]:
    """What freed each allocation, by address. Of one device, in order of time, shape (m,) each.

    Returns an array of shape (m,): at allocations the index of what ended them, NONE for what was never
    ended and elsewhere; and the indices of frees whose allocation was not seen. Where an address is allocated
    twice without a free between, the free was not seen: the first one ended at the latest when the second one
    was made.
    """
    freed = np.full(len(action), NONE, np.int64)
    chosen = np.flatnonzero((action == MemoryAction.ALLOCATE) | (action == MemoryAction.FREE))
    order = chosen[np.argsort(address[chosen], kind="stable")]
    makers = order[action[order] == MemoryAction.ALLOCATE]
    # The second round: two threads can take and give one address within a clock's tick, and be written in the
    # wrong order.
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
