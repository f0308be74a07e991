"""What only a GPU's allocator shows about a site: which line of a stack decides what stays, and what older
memory of its sizes went."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.memory.memory_kinds import Allocations
from tb_gpudiag.vocabulary.frames import Frame, is_installed, places_outwards
from tb_gpudiag.vocabulary.torch_frames import MODULE_FRAME

MUCH = 1 / 4
"""A function that keeps what one of its callers lets it make is no different to others, but for a few: those
of a first batch, or of one that has failed."""


class StackPlaces:
    """Which of the user's lines in a stack decides what stays.

    A line that makes tensors for several callers, of which some keep them, decides nothing. Nor does a helper
    of another file that makes nothing else: it may keep them, but is more likely to return them.
    """

    def __init__(self, allocations: Allocations, position: int) -> None:
        """position: of the event after which allocations count as kept."""
        stacks, stack = allocations.memory.stacks, allocations.stack
        known, alive = stack != NONE, np.zeros(len(stack), np.bool_)
        alive[allocations.alive(position)] = True
        self._made = np.bincount(stack[known], minlength=len(stacks))
        self._kept = np.bincount(stack[known & alive], minlength=len(stacks))
        self._stacks = stacks
        self._places = {int(i): places_outwards(stacks[i]) for i in np.flatnonzero(self._made)}
        self._lines = defaultdict[tuple[str, str], set[Frame]](set)
        for places in self._places.values():
            for place in places:
                self._lines[place.file, place.function].add(places[0])

    def frame(self, stack: int) -> Frame | None:
        """Return the innermost of a stack's lines below which others let go of a quarter of what it keeps
        itself, or less, or of no more than they keep: beyond what it lets go itself."""
        own = self._places.get(stack, [])
        alike = [i for i, places in self._places.items() if places == own]
        others = [i for i, places in self._places.items() if places[:1] == own[:1] and places != own]
        kept = self._kept[alike].sum()
        rate = kept / max(1, self._made[alike].sum())
        for depth, frame in enumerate(own):
            if not depth and 2 * rate > 1 and self._is_helper(own, stack):
                continue
            others = [i for i in others if self._places[i][: depth + 1] == own[: depth + 1]]
            also_kept = self._kept[others].sum()
            if rate * self._made[others].sum() - also_kept <= max(also_kept, kept * MUCH):
                return frame
        return next(iter(own), None)

    def _is_helper(self, own: list[Frame], stack: int) -> bool:
        """Whether the innermost function of the user's is in another file than its caller, calls no model,
        and neither it nor what it calls allocates at any other line. Neither of the two is a library's."""
        if len(own) < 2 or own[0].file == own[1].file or any(map(is_installed, own[:2])):
            return False
        sole = self._lines[own[0].file, own[0].function] == {own[0]}
        return sole and MODULE_FRAME.search(self._stacks[stack]) is None


def older_count(allocations: Allocations, sizes: Int64, floors: Int64) -> Int64:
    """Return how many are alive at each floor that are older than the recording, have one of these sizes, and
    go later than a step's own would: after the second floor. floors: positions, in order, shape (c,)."""
    until = np.searchsorted(floors, allocations.early_free, side="right")
    own = until[np.isin(allocations.early_free_bytes, sizes) & (until > 1)]
    gone = np.cumsum(np.bincount(own, minlength=len(floors) + 1))
    return (gone[-1] - gone)[: len(floors)]
