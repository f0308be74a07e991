"""Fitting: the recorded allocations replayed through a model of torch's caching allocator, to see how much
memory they need as they are, and with expandable segments.

Only a snapshot shows addresses, segments and the order of all allocations. Replayed unchanged, the model must
reserve what was recorded; how far it is off is its error.
"""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.memory.allocator_changes import (
    FREED,
    AllocatorChanges,
    Start,
    changes_of,
    fits,
    most_allocated,
    owners_of,
    start_of,
)
from tb_gpudiag.facts.memory.caching_allocator import ENDLESS, DoesNotFit
from tb_gpudiag.facts.memory.memory_kinds import Allocations
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Segments
from tb_gpudiag.vocabulary.recorded import MemoryAction

MOST_CHANGES = 100_000
"""Most allocations and frees that are replayed: a replay takes about 2 µs for each, and there are some
3 + 2 * ROUNDS of them."""

ROUNDS = 4
"""Halvings of the range between what is allocated at the peak and what is reserved: to a sixteenth of it."""

MOST_RAISED = 12
"""What was reserved is raised by a quarter so many times, to 14 times as much. What does not fit then never
does."""

MOST_ERROR = 0.01
"""A replay that reserves more or less than was recorded, by this share of the most, predicts nothing."""


@dataclass(frozen=True)
class Fit:
    """Sizes are bytes, as the allocator takes them.

    error_bytes: by how much the unchanged replay's reserved memory is off, at most.
    misplaced: allocations that are at another address than recorded. allocations: all that were replayed.
    needs_bytes: the least memory in which the allocations fit, to a sixteenth of what is unused. The
        allocator returns cached segments before it fails.
    expandable_needs_bytes: the same with expandable segments. Where the history begins in the middle of a
        job, what was there before is laid out without gaps, so it is at least this.
    whole: the history begins with empty memory.
    start, changes: what was replayed.
    """

    error_bytes: int
    misplaced: int
    allocations: int
    needs_bytes: int
    expandable_needs_bytes: int
    whole: bool
    start: Start
    changes: AllocatorChanges


def find_fit(allocations: Allocations, segments: Segments, device: int) -> Fit | None:
    """Replay a device's allocations, up to the last one that failed; None where the model does not apply:
    recorded expandable segments, too many changes, or a recording that the model does not reproduce."""
    own = segments.device == device
    count = int((~allocations.found).sum()) + len(allocations.free)
    if not own.any() or segments.expandable[own].any() or count > MOST_CHANGES:
        return None
    owners = owners_of(allocations, segments, own)
    start, changes = start_of(allocations, segments, own, owners), changes_of(allocations, owners)
    curve, memory = allocations.curve, allocations.memory
    came = curve.event[memory.action[curve.event] == MemoryAction.GROW]
    found = _error(start, changes, memory.address[came].astype(np.int64).tolist())
    if found is None or found[0] > MOST_ERROR * int(changes.reserved.max(initial=0)):
        return None
    low, high = most_allocated(start, changes), int(changes.reserved.max(initial=0))
    return Fit(
        error_bytes=found[0],
        misplaced=found[1],
        allocations=int((changes.size > 0).sum()),
        needs_bytes=_least(start, changes, low, high),
        expandable_needs_bytes=_least(start, changes, low, high, expandable=True),
        whole=not start.used,
        start=start,
        changes=changes,
    )


def _error(start: Start, changes: AllocatorChanges, addresses: list[int]) -> tuple[int, int] | None:
    """Replay unchanged, with the driver's addresses. Return by how much reserved memory is off at most, and
    how many allocations are elsewhere; None if blocks contradict."""
    if not start.is_consistent():
        return None
    error = misplaced = 0
    try:
        allocator = start.allocator(ENDLESS, addresses)
        rows = zip(*(column.tolist() for column in changes), strict=True)
        for number, size, address, _, recorded, owner in rows:
            if recorded == NONE:  # the request that failed
                continue
            if size > 0:
                misplaced += allocator.allocate(number, size, owner) != address
            elif size == FREED:
                allocator.free(number)
            else:
                allocator.return_segment(address)
            error = max(error, abs(allocator.reserved_bytes - recorded))
    except (KeyError, IndexError, TypeError, DoesNotFit):
        return None
    return error, misplaced


def _least(start: Start, changes: AllocatorChanges, low: int, high: int, *, expandable: bool = False) -> int:
    """Return the least memory in which all of it fits, from `low`, which may not do, to `high`, which mostly
    does: what was reserved."""
    high = max(low, high)
    for _ in range(MOST_RAISED):
        if fits(start, changes, high, expandable=expandable):
            break
        low, high = high, high + high // 4
    for _ in range(ROUNDS):
        middle = (low + high) // 2
        if fits(start, changes, middle, expandable=expandable):
            high = middle
        else:
            low = middle
    return high
