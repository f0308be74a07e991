"""What only a GPU's allocator shows about a site: which line of a stack decides what stays, and what older
memory of its sizes went."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.frames import Frame, innermost_place, places_outwards


class StackPlaces:
    """Which of the user's lines in a stack decides what stays.

    A line that makes tensors for several callers, of which some keep them, decides nothing.
    """

    def __init__(self, allocations: Allocations, position: int) -> None:
        """position: of the event after which allocations count as kept."""
        stacks, stack = allocations.memory.stacks, allocations.stack
        known, alive = stack != NONE, np.zeros(len(stack), np.bool_)
        alive[allocations.alive(position)] = True
        self._made = np.bincount(stack[known], minlength=len(stacks))
        self._kept = np.bincount(stack[known & alive], minlength=len(stacks))
        self._places = {int(i): places_outwards(stacks[i]) for i in np.flatnonzero(self._made)}

    def frame(self, stack: int) -> Frame | None:
        """Return the innermost of a stack's lines below which others let go of less than half of what it
        keeps itself, or of no more than they keep."""
        own = self._places.get(stack, [])
        others = [i for i, places in self._places.items() if places[:1] == own[:1] and places != own]
        for depth, frame in enumerate(own):
            others = [i for i in others if self._places[i][: depth + 1] == own[: depth + 1]]
            kept = self._kept[others].sum()
            if self._made[others].sum() - kept <= max(kept, self._kept[stack] / 2):
                return frame
        return own[0] if own else None


@dataclass(frozen=True, eq=False)
class Older:
    """What is older than the recording, and goes later than a step's own would: after the second floor.

    until: the first of the floors at which each is gone, shape (k,). count, bytes: at each floor, shape (c,).
    """

    until: Int64
    count: Int64
    bytes: Int64


def older_of(allocations: Allocations, sizes: Int64, floors: Int64) -> Older:
    """Return what has one of these sizes. floors: positions, in order, shape (c,)."""
    until = np.searchsorted(floors, allocations.early_free, side="right")
    own = np.isin(allocations.early_free_bytes, sizes) & (until > 1)
    until, size = until[own], allocations.early_free_bytes[own]
    gone = np.cumsum([np.bincount(until, weights, len(floors) + 1) for weights in (None, size)], axis=1)
    count, held = (gone[:, -1:] - gone)[:, : len(floors)].astype(np.int64)
    return Older(np.sort(until), count, held)


def line_numbers(allocations: Allocations, chosen: Int64) -> Int64:
    """Number the innermost of the user's lines in a snapshot's stack of each of these allocations, shape
    (k,); NONE without one, and for what was found when the history began."""
    stacks, code = allocations.memory.stacks, dict[Frame, int]()
    number = np.full(len(chosen), NONE, np.int64)
    for at, stack in enumerate(np.where(allocations.found[chosen], NONE, allocations.stack[chosen]).tolist()):
        place = innermost_place(stacks[stack]) if stack != NONE else None
        if place is not None:
            number[at] = code.setdefault(place, len(code))
    return number
