"""Allocations: when each one was freed, and what the host did when it was made."""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64, Numbers, UInt8, numbered, stable_order
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.memory.curve import Curve
from tb_gpudiag.facts.memory.phase import Phase, in_engine
from tb_gpudiag.trace.events import MemoryEvents
from tb_gpudiag.vocabulary.frames import Frame, innermost_place
from tb_gpudiag.vocabulary.operators import GETS_MEMORY
from tb_gpudiag.vocabulary.recorded import Category, MemoryAction
from tb_gpudiag.vocabulary.torch_frames import (
    FUNCTIONAL,
    FUNCTIONAL_FRAME,
    MODULE_FRAME,
    PARAMETER_COPY_FRAMES,
    STATE_COPY_FRAMES,
    WEIGHTS_COPY,
    inside_model,
    outermost_caller,
)


class MemoryContext:
    """What the host did at the instant of each memory event: arrays over all memory events, shape (m,).

    around: the innermost host span on the event's thread, or NONE. phase: Phase.
    """

    def __init__(self, memory: MemoryEvents, host: Host, around: Int64, phase: UInt8) -> None:
        self.memory, self.host, self.around, self.phase = memory, host, around, phase

    def _of(self, per_event: Numbers) -> Int64:
        around = self.around
        if not len(per_event):
            return around
        return np.where(around == NONE, NONE, per_event[around])

    @cached_property
    def operator(self) -> Int64:
        """Event of the innermost operator, or NONE. Operators that only get memory for others, such as
        aten::empty, count only if there is no other operator."""
        host = self.host
        does = (host.events.category == Category.CPU_OP) & ~match(host.events, GETS_MEMORY)
        wanted = self._of(host.tree.nearest_of(does))
        return np.where(wanted == NONE, self._of(host.operator), wanted)

    @cached_property
    def module(self) -> Int64:
        """Event of the nearest nn.Module, or NONE; in backward the forward operator's."""
        return self._of(self.host.module)

    @cached_property
    def place(self) -> Int64:
        """Number of the user's frame (see Host.frame), or NONE; in backward the forward operator's."""
        return self._of(self.host.place)

    def frame(self, event: int) -> Frame | None:
        """Return the user's frame of a memory event: in a snapshot from its stack."""
        stack = int(self.calling_stack[event])
        if stack != NONE:
            return innermost_place(self.memory.stacks[stack])
        return self.host.frame(int(self.place[event]))

    @cached_property
    def calling_stack(self) -> Int64:
        """Index into the snapshot's stacks, or NONE, shape (m,). Of what the engine allocates, it is the
        stack of the line that called backward()."""
        stack = self.memory.stack.astype(np.int64)
        if self.memory.stacks:
            by_engine = (stack == NONE) & (self.phase == Phase.BACKWARD) & (self._backward_call != NONE)
            stack[by_engine] = stack[self._backward_call[by_engine]]
        return stack

    @cached_property
    def _backward_call(self) -> Int64:
        """The event that the call of backward() made itself: the last one before each event, or the first one
        of all. NONE without any, shape (m,)."""
        stack = self.memory.stack
        called = (self.phase == Phase.BACKWARD) & (stack != NONE) & ~in_engine(self.memory.stacks)[stack]
        first = int(called.argmax()) if called.any() else NONE
        last = np.maximum.accumulate(np.where(called, np.arange(len(called)), NONE))
        return np.where(last == NONE, first, last)


class RecordedAllocations:
    """Allocations of one device in order of time, shape (a,) each. Positions are indices into `curve`.

    event: index of its event in Trace.memory.
    position: position of that event.
    stack: index into MemoryEvents.stacks, or NONE. Only snapshots have stacks.
    phase: Phase in which it was made.
    found: mask of the allocations that a snapshot found when its history began: they were made earlier.
    freed: position of the event that ended it; NONE if it was alive at the end.
    free: positions of all frees.
    failures: positions of requests that failed.
    early_free: positions of the frees of memory that was allocated before the recording, shape (f,).
    paired: False without addresses (old traces), which do not say what a free freed. Then `freed` is NONE and
    `early_free` is empty.
    """

    def __init__(self, curve: Curve, context: MemoryContext) -> None:
        self.curve, self.context = curve, context
        self.memory, self.host = context.memory, context.host
        memory = context.memory
        action, address = memory.action[curve.event], memory.address[curve.event]
        self.position: Int64 = np.flatnonzero(action == MemoryAction.ALLOCATE)
        self.event: Int64 = curve.event[self.position]
        self.free: Int64 = np.flatnonzero(action == MemoryAction.FREE)
        self.failures: Int64 = np.flatnonzero(action == MemoryAction.OUT_OF_MEMORY)
        self.paired = bool(address.any())
        freed, early = (
            pair(action, address, memory.bytes[curve.event])
            if self.paired
            else (np.full(len(action), NONE, np.int64), np.zeros(0, np.int64))
        )
        self._stacks_with: dict[re.Pattern[str], Bool] = {}
        self.time_ns: Int64 = memory.time_ns[self.event]
        self.bytes: Int64 = memory.bytes[self.event]
        self.stack: Int32 = memory.stack[self.event]
        self.phase: UInt8 = context.phase[self.event]
        found = memory.found
        self.found: Bool = np.zeros(len(self), np.bool_) if found is None else found[self.event]
        self.freed: Int64 = freed[self.position]
        self.early_free: Int64 = early

    def __len__(self) -> int:
        return len(self.position)

    @cached_property
    def kept_by_forward(self) -> int:
        """Bytes that forward operators allocated and that were alive at the end; 0 without addresses."""
        alive = (self.freed == NONE) & ~self.found & (self.phase == Phase.FORWARD)
        return int(self.bytes[alive].sum()) if self.paired else 0

    @cached_property
    def freed_ns(self) -> Int64:
        """NONE if alive at the recording's end."""
        return np.where(self.freed == NONE, NONE, self.curve.time_ns[self.freed])

    @cached_property
    def early_free_bytes(self) -> Int64:
        return -self.memory.bytes[self.curve.event[self.early_free]]

    @cached_property
    def free_ns(self) -> Int64:
        return self.curve.time_ns[self.free]

    @cached_property
    def free_bytes(self) -> Int64:
        return -self.memory.bytes[self.curve.event[self.free]]

    @cached_property
    def operator(self) -> Int64:
        """Event of the operator that wanted the memory, or NONE: see MemoryContext.operator."""
        return self.context.operator[self.event]

    @cached_property
    def site_stack(self) -> Int64:
        """Number of its stack with each frame once, or NONE: a recursion is one site however deep it is."""
        once = ("\n".join(sorted(set(stack.split("\n")))) for stack in self.memory.stacks)
        return np.append(numbered(once), NONE)[self.stack]

    @cached_property
    def inside_model(self) -> Int64:
        """By stack, the number of what it has from where a model is called: training and evaluation call it
        at different lines. The last one is NONE."""
        return np.append(numbered(map(inside_model, self.memory.stacks)), NONE)

    @property
    def inner_stack(self) -> Int64:
        """Number of what its stack has from where a model is called, or NONE."""
        return self.inside_model[self.stack]

    @cached_property
    def module(self) -> Int64:
        """Event of the nearest nn.Module, or NONE; in backward the forward operator's."""
        return self.context.module[self.event]

    @cached_property
    def place(self) -> Int64:
        """Number of the user's frame (see Host.frame), or NONE; in backward the forward operator's."""
        return self.context.place[self.event]

    def frame(self, index: int) -> Frame | None:
        """Return the user's frame that made an allocation."""
        return self.context.frame(int(self.event[index]))

    def alive(self, position: int) -> Int64:
        """Return the indices of the allocations that are alive after the event at this position; none without
        addresses."""
        made = int(np.searchsorted(self.position, position, side="right")) if self.paired else 0
        kept = (self.freed[:made] == NONE) | (self.freed[:made] > position)
        return np.flatnonzero(kept)

    def in_stack(self, frame: re.Pattern[str]) -> Bool:
        """Mask of a snapshot's allocations with such a frame, shape (a,)."""
        if not self.memory.stacks:
            return np.zeros(len(self), np.bool_)
        if (of_stack := self._stacks_with.get(frame)) is None:
            found = [frame.search(stack) is not None for stack in self.memory.stacks]
            of_stack = self._stacks_with[frame] = np.array(found, np.bool_)
        return (self.stack != NONE) & of_stack[self.stack]

    @cached_property
    def in_module(self) -> Bool:
        """Mask of allocations inside a module's forward pass, shape (a,)."""
        return self.in_stack(MODULE_FRAME) | (self.module != NONE)

    @cached_property
    def in_functional(self) -> Bool:
        """Mask of allocations in torch.nn.functional, such as a loss outside of modules, shape (a,)."""
        return self.in_stack(FUNCTIONAL) | self._in_function(FUNCTIONAL_FRAME)

    @cached_property
    def copies_weights(self) -> Bool:
        """Mask of allocations in a deep copy of a module or of its state_dict(), shape (a,)."""
        found = self.in_stack(WEIGHTS_COPY)
        for frames in (PARAMETER_COPY_FRAMES, STATE_COPY_FRAMES):
            found |= self._in_function(*frames)
        return found

    def _in_function(self, frame: re.Pattern[str], *callers: re.Pattern[str]) -> Bool:
        """Mask of a trace's allocations inside such a Python function that these call, shape (a,)."""
        events, tree = self.host.events, self.host.tree
        python = events.category == Category.PYTHON_FUNCTION
        function = match(events, frame) & python
        if not function.any():
            return np.zeros(len(self), np.bool_)
        around = self.context.around[self.event]
        inner = np.where(around == NONE, NONE, tree.nearest_of(function)[around])
        for caller in callers:
            outer = np.where(inner == NONE, NONE, tree.parent[inner])
            inner = np.where((outer != NONE) & (match(events, caller) & python)[outer], outer, NONE)
        return inner != NONE

    def call_begins(self, caller: str) -> Int64:
        """Return the positions at which this line calls a model: its allocations begin, or others were in
        between. caller: see outermost_caller."""
        codes = [i for i, stack in enumerate(self.memory.stacks) if outermost_caller(stack) == caller]
        own = np.flatnonzero(np.isin(self.stack, codes))
        return self.position[own[np.diff(own, prepend=NONE - 1) > 1]]


def pair(action: npt.NDArray[np.uint8], address: npt.NDArray[np.uint64], size: Int64) -> tuple[Int64, Int64]:
    """Pair the allocations of one device with the events that ended them, by address.

    Arguments are events in order of time, shape (m,) each. Returns the index of the event that ended each
    allocation (NONE for allocations that never ended, and for other events), shape (m,), and the indices of
    frees without a recorded allocation. Where an address is allocated twice without a free in between, the
    free was not recorded: the first allocation ended at the latest when the second one was made.
    """
    freed = np.full(len(action), NONE, np.int64)
    chosen = np.flatnonzero((action == MemoryAction.ALLOCATE) | (action == MemoryAction.FREE))
    order = chosen[stable_order(address[chosen])]
    makes, at, change = action[order] == MemoryAction.ALLOCATE, address[order], size[order]
    makers, at_makers = order[makes], at[makes]
    # A second round, because two threads can free and allocate one address within a clock tick, and the
    # events be in the wrong order.
    for _ in range(2):
        ends = makes[:-1] & ~makes[1:] & (at[:-1] == at[1:]) & (change[:-1] == -change[1:])
        freed[order[:-1][ends]] = order[1:][ends]
        left = ~(np.r_[ends, False] | np.r_[False, ends])[: len(order)]
        order, makes, at, change = order[left], makes[left], at[left], change[left]
    again = (at_makers[1:] == at_makers[:-1]) & (freed[makers[:-1]] == NONE)
    freed[makers[:-1][again]] = makers[1:][again]
    return freed, np.sort(order[~makes])
