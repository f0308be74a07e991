"""Kinds of memory: what an allocation is for, as far as phases, modules and lifetimes say."""

from __future__ import annotations

from collections import Counter, defaultdict
from enum import Enum
from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, UInt8, stable_order
from tb_gpudiag.facts.core.intervals import groups
from tb_gpudiag.facts.memory.allocations import RecordedAllocations
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.vocabulary.torch_frames import outermost_caller


class MemoryKind(Enum):
    """What memory is for, as far as phases and lifetimes say."""

    BEFORE = "before"  # allocated before the recording
    PARAMETER = "parameter"  # allocated while a module was built, moved or copied
    GRADIENT = "gradient"  # allocated in backward, outlives it
    OPTIMIZER_STATE = "optimizer_state"  # allocated in the optimizer, outlives its step
    ACTIVATION = "activation"  # allocated in forward, and alive when backward begins
    TEMPORARY = "temporary"  # freed before the pass that allocated it had ended
    INPUT = (
        "input"  # allocated by the loader, for a copy from the host, or by the loop before it calls the model
    )
    UNKNOWN = (
        "unknown"  # retained outside of modules, its free not recorded, or its allocation not identified
    )


KINDS = list(MemoryKind)

MOST_INPUTS = 2
"""A step's batch is replaced by the next one. Of what a line keeps, more than this many are alive at once."""


LAST_SHARE = 0.75
"""The last half of what a place made lies beyond this share of it, on average; every n-th one at a half."""

KEEPS_LESS = 0.7
"""A pass that records a graph keeps about what the one before has kept, at the same place."""


FEWEST_PASSES = 3
"""A model that is called so often without a backward pass is not in its first training step."""


class Allocations(RecordedAllocations):
    """Allocations with what each one is for."""

    @cached_property
    def kind(self) -> UInt8:
        """What each allocation is for: an index into KINDS. Shape (a,), read-only."""
        kinds = _Kinds(self)
        kinds.passes()
        kinds.forward()
        kinds.inputs()
        kinds.copies()
        kinds.found.setflags(write=False)
        return kinds.found


MOST_AT_ONCE = 5
"""Results of one line, layer after layer, that only a graph keeps all: an LSTM has four gates at once."""


class _Kinds:
    """Kinds of allocations, as far as they are known.

    Lifetimes are compared with the phases that follow: for a forward allocation the next backward pass, for
    one in backward the first event outside of backward.
    """

    def __init__(self, allocations: RecordedAllocations) -> None:
        self.allocations, self.own = allocations, allocations.phase
        self.failed = len(allocations.failures) > 0
        self.phase = phase = allocations.context.phase[allocations.curve.event]
        self.made = allocations.position
        self.never = allocations.freed == NONE
        self.end = np.where(self.never, len(phase), allocations.freed)
        self.found = np.full(len(allocations), KINDS.index(MemoryKind.UNKNOWN), np.uint8)
        self.backward = self._next(phase == Phase.BACKWARD, self.made)

    def passes(self) -> None:
        """Gradients, optimizer state, and what backward passes and optimizers need only for a while."""
        for phase, kind in (
            (Phase.BACKWARD, MemoryKind.GRADIENT),
            (Phase.OPTIMIZER, MemoryKind.OPTIMIZER_STATE),
        ):
            own = self.own == phase
            following = self._next((self.phase != phase) & (self.phase != Phase.UNKNOWN), self.made)
            follows, alive_then = following < len(self.phase), self.end >= following
            self._put(own & ~self.never & ~alive_then, MemoryKind.TEMPORARY)
            self._put(own & follows & alive_then, kind)
            # A pass that fails does not end: gradients wait for their optimizer. The first step of an
            # optimizer makes its state.
            self._put(own & self.never & ~follows & self.failed, kind)
        # Nor does one in which the recording ends. There, state is what a line makes and never frees.
        kept = (self.own == Phase.OPTIMIZER) & self.never & ~self._is_mostly_freed
        self._put(kept, MemoryKind.OPTIMIZER_STATE)
        self._put(self.own == Phase.PARAMETER, MemoryKind.PARAMETER)

    def forward(self) -> None:
        """Activations, and what a forward pass needs only for a while."""
        own = self.own == Phase.FORWARD
        in_model = self.allocations.in_module | self.allocations.in_functional
        self._put(own & ~self.never & (self.end < self.backward), MemoryKind.TEMPORARY)
        over = self._next(self.phase == Phase.FORWARD, self.backward)
        ends = ~self.never & (self.end >= self.backward)
        # Something other than the graph retains memory that lives on into the next forward pass.
        self._put(own & ends & (self.end < over), MemoryKind.ACTIVATION)
        # A pass that fails does not end: its results wait for a backward pass. A recording without one shows
        # only by its modules which ones wait.
        waits = own & self.never & (over > len(self.phase))
        if (self.phase == Phase.BACKWARD).any():
            # What modules compute in each step is activations also where something keeps it. What they make
            # once may be a cache.
            self._put(own & in_model & (self.never | ends) & self._goes_on(), MemoryKind.ACTIVATION)
            if self.failed:
                last = own & in_model & self.never & (self.backward > len(self.phase))
                last = (waits | last) & self._records_no_graph()
                self._put(last, MemoryKind.TEMPORARY)
                waits &= ~last
            waits &= self.failed
        else:
            waits &= in_model
            passes = waits & (self._is_mostly_freed & self._keeps_last() | self._only_infers())
            self._put(passes, MemoryKind.TEMPORARY)
            waits &= ~passes
        self._put(waits, MemoryKind.ACTIVATION)

    def inputs(self) -> None:
        """What the loop allocates before it calls the model, and replaces in the next step."""
        allocations = self.allocations
        in_model = allocations.in_module
        called = np.zeros(len(self.phase), np.bool_)
        called[allocations.position[in_model & (allocations.phase == Phase.FORWARD)]] = True
        call = self._next(called, self.made)
        given = (self.own == Phase.FORWARD) & ~(in_model | allocations.in_functional)
        given &= (call < self.backward) & (call < len(self.phase)) & (self.end > call)
        # A graph lets go of what it saved during its backward pass, the loop later.
        passed = (self.phase != Phase.BACKWARD) & (self.phase != Phase.UNKNOWN)
        trained = self._next(passed, self.backward)
        later = np.where(self.backward < len(self.phase), self.end >= trained, True)
        # All that is there when the model is first called may be all batches.
        first = self.made < np.flatnonzero(called).min(initial=len(called))
        self._put(given & (self.never | later) & (first | ~self._is_kept()), MemoryKind.INPUT)
        self._put(self.own == Phase.INPUT, MemoryKind.INPUT)

    def copies(self) -> None:
        """Copies of weights, whenever a job makes them: for an average, or the best ones."""
        self._put(self.allocations.copies_weights, MemoryKind.PARAMETER)

    def _records_no_graph(self) -> bool:
        """Whether the modules of the pass that failed keep far less of what those of an earlier pass kept for
        its backward pass: it is a validation under torch.no_grad(). Bytes count: batch normalization saves
        two small tensors more when it trains."""
        allocations = self.allocations
        own = np.flatnonzero(allocations.in_module & (allocations.phase == Phase.FORWARD))
        backward = self._next(self.phase == Phase.BACKWARD, allocations.position[own])
        failed, trained = own[backward > len(self.phase)], own[backward <= len(self.phase)]
        if not len(failed) or not len(trained):
            return False
        begins, number, size = np.unique(backward[: len(trained)], return_inverse=True, return_counts=True)
        largest, failed = _paired(allocations.inner_stack, trained[number == int(size.argmax())], failed)
        if not len(failed):
            return False
        # What the pass made last is in use.
        judged = len(failed) - MOST_AT_ONCE if len(failed) > MOST_AT_ONCE else len(failed)
        largest, failed = largest[:judged], failed[:judged]
        freed, saved = allocations.freed[largest], allocations.bytes[largest]
        kept = (freed == NONE) | (freed > begins[size.argmax()])
        alive = allocations.freed[failed] == NONE
        # Where a frozen part is trained from now on, it keeps other things, and more.
        less = saved[alive].sum() <= saved[kept].sum()
        return bool(less and saved[kept & alive].sum() <= KEEPS_LESS * saved[kept].sum())

    def _only_infers(self) -> bool:
        """Whether lines have called a model several times, nothing they made then is kept for a backward
        pass, and no line has made much else that is. A loop over equal layers is one pass of a model that has
        other ones, too."""
        allocations, memory = self.allocations, self.allocations.memory
        own = np.flatnonzero((allocations.phase == Phase.FORWARD) & (allocations.stack != NONE))
        calls = defaultdict[str, list[Int64]](list)
        for code in np.unique(allocations.stack[own]).tolist():
            if caller := outermost_caller(memory.stacks[code]):
                calls[caller].append(own[allocations.stack[own] == code])
        often = [np.concatenate(made) for made in calls.values() if min(map(len, made)) >= FEWEST_PASSES]
        idle = all((allocations.freed[rows] != NONE).all() for rows in often)
        kept = Counter(allocations.stack[own[allocations.freed[own] == NONE]].tolist())
        return bool(often) and idle and max(kept.values(), default=0) < MOST_AT_ONCE

    def _goes_on(self) -> Bool:
        """Whether the same place still allocates after the last backward pass but one."""
        inside = self.phase == Phase.BACKWARD
        known = np.flatnonzero(self.phase != Phase.UNKNOWN)
        begins = known[inside[known] & ~np.r_[False, inside[known[:-1]]]]
        if len(begins) < 2:
            return np.zeros(len(self.found), np.bool_)
        number = self._places
        last = np.zeros(int(number.max(initial=0)) + 1, np.int64)
        np.maximum.at(last, number, self.allocations.position)
        return (last > begins[-2])[number]

    def _is_kept(self) -> Bool:
        """Whether more than MOST_INPUTS of what the same place allocated are never freed."""
        number = self._places
        kept = np.bincount(number, weights=self.never)
        return (kept > MOST_INPUTS)[number]

    @cached_property
    def _is_mostly_freed(self) -> Bool:
        """Whether most of what the same place allocated was freed, as in inference."""
        number = self._places
        freed = np.bincount(number, weights=~self.never)
        return (2 * freed > np.bincount(number))[number]

    def _keeps_last(self) -> Bool:
        """Whether what is alive is what the same place made last. Of a line that makes several results, a
        graph keeps one of each call."""
        number, alive = self._places, self.never
        order = stable_order(number)
        count = np.bincount(number)
        rank = np.empty(len(number), np.int64)
        rank[order] = np.arange(len(number)) - np.repeat(np.cumsum(count) - count, count)
        mean = np.bincount(number, weights=rank * alive) / np.maximum(1, np.bincount(number, weights=alive))
        return (mean >= LAST_SHARE * (count - 1))[number]

    @cached_property
    def _places(self) -> Int64:
        """Number of the place of each allocation, shape (a,)."""
        allocations = self.allocations
        names = allocations.host.names(allocations.operator)
        return groups(allocations.stack.astype(np.int64), allocations.place, names)[0]

    def _put(self, where: Bool, kind: MemoryKind) -> None:
        self.found[where] = KINDS.index(kind)

    @staticmethod
    def _next(marks: Bool, position: Int64) -> Int64:
        """Return the first mark after each position; a number beyond all positions without one."""
        at = np.flatnonzero(marks)
        after = np.repeat(np.r_[at, np.iinfo(np.int64).max], np.diff(np.r_[0, at, len(marks)]))
        return after[np.minimum(position, len(marks) - 1)]


def _paired(stack: Int64, first: Int64, second: Int64) -> tuple[Int64, Int64]:
    """Of two passes, pair what the same stack allocated: the first one with the first one, and so on. Return
    the indices in each, by the second's order. first, second: indices, ascending."""
    most = len(first) + len(second)
    one, other = (stack[rows] * most + _ranks(stack[rows]) for rows in (first, second))
    _, in_first, in_second = np.intersect1d(one, other, assume_unique=True, return_indices=True)
    order = np.argsort(in_second)
    return first[in_first[order]], second[in_second[order]]


def _ranks(code: Int64) -> Int64:
    """Return how many equal ones come before each."""
    order = np.argsort(code, kind="stable")
    first = np.searchsorted(code[order], code[order])
    ranks = np.empty(len(code), np.int64)
    ranks[order] = np.arange(len(code)) - first
    return ranks
