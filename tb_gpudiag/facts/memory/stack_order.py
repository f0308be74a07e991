"""What the order of a snapshot's events says about a site, whose operators no snapshot has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.memory.memory_kinds import Allocations
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.frames import Frame, LineKind, place_frame, places_outwards
from tb_gpudiag.vocabulary.torch_frames import (
    MODULE_FRAME,
    around_innermost_module,
    innermost_frame,
    is_in_layer,
    outermost_caller,
)


@dataclass(frozen=True)
class SiteOrder:
    """shrinks: how many times larger than the site's own tensors the largest is that its line makes just
        before and lets go, or, where a hook or a module's own forward() makes them, the largest that this
        module makes.
    reduced: how many times smaller is what their line makes last, outside of modules: of an expression that
        sums up, what it made on the way is so much larger.
    results: how many tensors one call of a layer of torch's leaves, of which one is the largest.
    goes_on: the outermost module that makes them goes on to make others.
    taker: the function that hands to backward() what the site's function returned to it, with a graph that
        stays whole; None if there is none.
    """

    shrinks: float = 0.0
    reduced: float = 0.0
    results: int = 0
    goes_on: bool = False
    taker: Frame | None = None


class StackOrder:
    """The order in which stacks allocate. Nothing is known of a trace."""

    def __init__(self, allocations: Allocations) -> None:
        self._allocations = allocations

    def of(self, held: Int64, text: str) -> SiteOrder:
        """Return what is known of these allocations, which have one stack: `text`."""
        known = len(held) and (self._allocations.stack[held] != NONE).all()
        if not known:
            return SiteOrder()
        inside, of_layer = MODULE_FRAME.search(text) is not None, is_in_layer(text)
        shrinks = self._in_module(held, text) if inside else self._on_line(held)
        return SiteOrder(
            shrinks=0.0 if inside and of_layer else shrinks,
            reduced=0.0 if inside else self._reduced(held, text),
            results=self._results(held) if of_layer else 1,
            goes_on=inside and self._goes_on(held),
            taker=self._taker(held, text),
        )

    def _on_line(self, held: Int64) -> float:
        """The largest that the same lines made in a row, outside of modules, and let go."""
        return float(np.median(self._let_go[held] / np.maximum(self._allocations.bytes[held], 1)))

    def _reduced(self, held: Int64, text: str) -> float:
        """Compared with what their line makes last in the same stretch of its function's allocations. What a
        library makes may be kept by it."""
        if place_frame(innermost_frame(text), LineKind.RUNNING) is None:
            return 0.0
        size, run = self._allocations.bytes, self._function_run
        line = np.flatnonzero(self._line == self._line[held[0]])
        last = line[np.searchsorted(run[line], run[held], side="right") - 1]
        return float(np.median(size[held] / np.maximum(size[last], 1)))

    def _in_module(self, held: Int64, text: str) -> float:
        """The largest that the innermost module around makes, or one that is called by the same line."""
        around, stacks = around_innermost_module(text) + "\n", self._allocations.memory.stacks
        beside = np.array([stack.startswith(around) for stack in stacks], np.bool_)
        largest = self._largest[beside].max(initial=0)
        return float(largest / max(1.0, float(np.median(self._allocations.bytes[held]))))

    def _results(self, held: Int64) -> int:
        """Of what one stack makes in a row, and is kept: how many there usually are for each largest one."""
        size = self._allocations.bytes[held]
        _, run = np.unique(self._stack_run[held], return_inverse=True)
        largest = np.zeros(int(run.max()) + 1, np.int64)
        np.maximum.at(largest, run, size)
        as_large = np.bincount(run, weights=size == largest[run])
        return int(np.median(np.bincount(run) / as_large))

    def _goes_on(self, held: Int64) -> bool:
        """Whether most of these are followed by others of the same call of the outermost module."""
        outer, begins = self._outer, self._begins
        after = np.minimum(held + 1, len(outer) - 1)
        follows = (outer[after] == outer[held]) & (after > held) & ~begins[after]
        return bool(2 * follows.sum() > len(held))

    def _taker(self, held: Int64, text: str) -> Frame | None:
        calls = self._calls
        if not len(calls):
            return None
        call = np.searchsorted(calls, self._allocations.event[held])
        called, call = held[call < len(calls)], call[call < len(calls)]
        if 2 * len(called) < len(held) or 2 * self._lets_go(called, call).sum() > len(held):
            return None
        stacks, count = np.unique(self._allocations.memory.stack[calls[call]], return_counts=True)
        own = places_outwards(text)[::-1]
        caller = places_outwards(self._allocations.memory.stacks[int(stacks[count.argmax()])])[::-1]
        shared = _shared(own, caller)
        return own[shared - 1] if 0 < shared == len(caller) < len(own) else None

    def _lets_go(self, held: Int64, call: Int64) -> Bool:
        """Mask of these for which the next call, which is before their stack makes another one, lets go of a
        graph."""
        made = np.flatnonzero(self._allocations.stack == self._allocations.stack[held[0]])
        event = np.r_[self._allocations.event[made], np.iinfo(np.int64).max]
        following = event[np.searchsorted(made, held, side="right")]
        return self._frees[call] & (self._calls[call] < following)

    @cached_property
    def _calls(self) -> Int64:
        """The events that calls of backward() made themselves, which have their stack."""
        context = self._allocations.context
        return np.flatnonzero((context.phase == Phase.BACKWARD) & (context.memory.stack != NONE))

    @cached_property
    def _frees(self) -> Bool:
        """Mask of these calls whose pass, up to the next allocation outside of it, lets go of results of the
        forward pass: a graph that stays is another one."""
        allocations, phase, calls = self._allocations, self._allocations.context.phase, self._calls
        outside = allocations.event[allocations.phase != Phase.BACKWARD]
        ended = allocations.freed[(allocations.freed != NONE) & (allocations.phase == Phase.FORWARD)]
        ended = allocations.curve.event[ended]
        ended = ended[np.isin(phase[ended], (Phase.BACKWARD, Phase.UNKNOWN))]
        number, of_end = np.searchsorted(outside, calls), np.searchsorted(outside, ended)
        after = ended > np.r_[calls, np.iinfo(np.int64).max][np.searchsorted(number, of_end)]
        return np.isin(number, of_end[after])

    @cached_property
    def _largest(self) -> Int64:
        """Bytes of the largest that each stack allocates."""
        allocations = self._allocations
        known, largest = allocations.stack != NONE, np.zeros(len(allocations.memory.stacks), np.int64)
        np.maximum.at(largest, allocations.stack[known], allocations.bytes[known])
        return largest

    @cached_property
    def _line(self) -> Int64:
        """Number of the user's lines that call each other and allocate."""
        return self._numbered([tuple(places_outwards(stack)) for stack in self._allocations.memory.stacks])

    @cached_property
    def _function_run(self) -> Int64:
        """Number of the stretch that the same functions allocate in a row."""
        places = map(places_outwards, self._allocations.memory.stacks)
        return _runs(self._numbered([tuple((one.file, one.function) for one in stack) for stack in places]))

    @cached_property
    def _let_go(self) -> Int64:
        """Of each allocation, the largest that its line makes in a row with it and lets go."""
        allocations = self._allocations
        run = _runs(self._line)
        largest = np.zeros(int(run[-1]) + 1, np.int64)
        let_go = (allocations.freed != NONE) & ~allocations.in_module
        np.maximum.at(largest, run, np.where(let_go, allocations.bytes, 0))
        return largest[run]

    @cached_property
    def _stack_run(self) -> Int64:
        return _runs(self._allocations.stack.astype(np.int64))

    @cached_property
    def _outer(self) -> Int64:
        """Number of the part of the stack that ends where the outermost module is called."""
        outer = [outermost_caller(stack) for stack in self._allocations.memory.stacks]
        number = self._numbered(outer)
        return np.where(np.array([*map(bool, outer), False])[self._allocations.stack], number, NONE)

    @cached_property
    def _begins(self) -> Bool:
        """Mask of the allocations that are like the first one of several calls in a row of the outermost
        module: another call begins there."""
        run, stack = _runs(self._outer), self._allocations.stack
        first = np.flatnonzero(np.r_[True, run[1:] != run[:-1]])
        return np.asarray(stack == stack[first][run])

    def _numbered(self, of_stack: Sequence[object]) -> Int64:
        code: dict[object, int] = {}
        number = [code.setdefault(one, len(code)) for one in of_stack]
        return np.array([*number, NONE], np.int64)[self._allocations.stack]


def _runs(number: Int64) -> Int64:
    """Number the stretches in which this does not change."""
    return np.cumsum(np.r_[False, number[1:] != number[:-1]])


def _shared(own: list[Frame], other: list[Frame]) -> int:
    """Return how many functions two stacks share, outermost first: of the last one, the line may differ."""
    same = 0
    for a, b in zip(own, other, strict=False):
        if (a.file, a.function) != (b.file, b.function):
            break
        same += 1
        if a != b:
            break
    return same
