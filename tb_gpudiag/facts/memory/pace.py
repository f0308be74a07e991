"""How the growth of what a site keeps goes on: evenly to the end, less and less, or no more."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.frozen import dataclass

_ALIKE = 0.1
"""Jumps of one size differ by up to this share of it."""

_FEWEST_JUMPS = 4
"""Fewer jumps may be alike by chance."""

_FEWEST_LASTING = 3
"""The same of tensors that last: a batch of another size is there for one step."""

_LASTED = 2
"""What was alive at so many floors was kept: a step's own tensors are alive at one."""

_AS_FULL = 1.25
"""A buffer with room for so many bytes is full to its next entry."""

_AT_ONCE = 3
"""What is cleared, or found by Python's garbage collector, goes by so many or more at once."""


@dataclass(frozen=True)
class Pace:
    """quiet: floors at the end without growth. longest_quiet: the most floors without it between others.
    oldest_gone: allocations that were kept and freed, if all were older than all that are alive, and they
        went at once, or about as much was alive then; or 0. A queue that is read too slowly grows on, and so
        does what is copied anew, with more each time.
    in_even_jumps: the bytes grew by the same amount now and then, and never fell. Where each of a few larger
        ones replaces the one before and lasts, the whole floor rose in such jumps as well.
    """

    quiet: int
    longest_quiet: int
    oldest_gone: int
    in_even_jumps: bool


def pace_of(counts: Int64, size: Int64, older: Int64, since: Int64, until: Int64, floor: Int64) -> Pace:
    """counts, size: allocations of a site and their bytes at each floor, shape (c,). older: bytes there that
    are older than the recording and may be the site's. since, until: of both in order of time, the first
    floor at which each is alive, and the first one after that at which it is not, shape (k,). floor: all
    bytes at each, shape (c,)."""
    growth = np.diff(np.maximum.accumulate(counts)).astype(np.float64)
    grew = np.flatnonzero(growth)
    return Pace(
        quiet=len(growth) - 1 - int(grew[-1]) if len(grew) else len(growth),
        longest_quiet=int(np.diff(grew).max(initial=1)) - 1,
        oldest_gone=_oldest_gone(size + older, since, until),
        in_even_jumps=_in_even_jumps(np.diff(size)) or _lasting_jumps(counts, size, floor),
    )


def _oldest_gone(size: Int64, since: Int64, until: Int64) -> int:
    alive = until == len(size)
    gone = np.flatnonzero((until - since >= _LASTED) & ~alive)
    if not len(gone) or not alive.any() or gone[-1] > int(np.argmax(alive)):
        return 0
    went = np.unique(until[gone])
    at_once = len(gone) >= _AT_ONCE * len(went) and not _copied_anew(size, went)
    as_full = size[-1] <= _AS_FULL * size[: int(went[0])].max()
    return len(gone) if at_once or as_full else 0


def _copied_anew(size: Int64, went: Int64) -> bool:
    """Whether more came each time that older ones went, and the bytes never fell since.

    went: floors, shape (n,).
    """
    more = bool((size[went] > size[went - 1]).all()) and bool((np.diff(size[went[0] - 1 :]) >= 0).all())
    return len(went) >= _FEWEST_JUMPS and more


def _in_even_jumps(change: Int64) -> bool:
    jumps = change[change != 0][1:]  # the first one is from nothing
    if len(jumps) < _FEWEST_JUMPS or jumps.min() <= 0:
        return False
    return bool(np.ptp(jumps) <= _ALIKE * np.median(jumps))


def _lasting_jumps(counts: Int64, size: Int64, floor: Int64) -> bool:
    """Whether larger ones replace each other now and then, and the floor rises with each as evenly: from one
    to the next, where the first one replaces what is older than the recording."""
    grew = np.flatnonzero(np.diff(size)) + 1
    borders = np.r_[0, grew, len(size)]
    lasted = bool((np.diff(borders)[1:-1] >= _LASTED).all())
    falls = bool((np.diff(floor) < 0).any())
    if len(grew) < _FEWEST_LASTING or not lasted or falls or np.ptp(counts[grew]) > 0:
        return False
    between = [float(np.median(floor[a:b])) for a, b in pairwise(borders.tolist())]
    jumps = np.r_[np.diff(between), np.diff(size[grew])]
    return bool(jumps.min() > 0 and np.ptp(jumps) <= _ALIKE * np.median(jumps))
