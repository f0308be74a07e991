"""Types of NumPy columns, the value of an entry that says nothing, and what many modules compute of columns.
Open to all layers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int32 | np.int64]  # of events, names and the like
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
UInt8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]

NONE = -1
"""Value of an entry of a column for which nothing was recorded."""


def summed(group: npt.NDArray[Any], values: npt.NDArray[Any] | int, groups: int) -> Int64:
    """Add up the whole numbers of each group, shape (groups,): exactly, which np.bincount does not.

    group: of each value, from 0.
    """
    found = np.zeros(groups, np.int64)
    np.add.at(found, group, values)
    return found


def median(values: npt.NDArray[Any]) -> float:
    """The median; 0 of nothing."""
    return float(np.median(values)) if len(values) else 0.0


def numbered(values: Iterable[Hashable]) -> Int64:
    """Number the values in order of their first places, shape (n,)."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values], np.int64)


def mask_of(index: npt.NDArray[Any] | Sequence[int], count: int) -> Bool:
    """Mask of the entries at these indices, shape (count,)."""
    found = np.zeros(count, np.bool_)
    found[index] = True
    return found


def marked(mask: Bool, index: npt.NDArray[Any]) -> Bool:
    """Whether the mask holds at each index, shape of `index`: not at NONE."""
    found: Bool = index != NONE
    found[found] = mask[index[found]]
    return found


def places_of(kept: npt.NDArray[Any], count: int) -> Int64:
    """Return the place of each entry among those that are kept; NONE for the others, and of NONE.

    Shape (count + 1,): the last one is the place of NONE, which is -1.
    """
    found = np.full(count + 1, NONE, np.int64)
    found[kept] = np.arange(len(kept))
    return found


def rows_with(ordered: npt.NDArray[Any], value: int) -> tuple[int, int]:
    """Return where the rows with a value begin and end, of a column in order. The value may be the largest
    that the column can hold."""
    return int(np.searchsorted(ordered, value, "left")), int(np.searchsorted(ordered, value, "right"))


def stable_order(values: npt.NDArray[Any]) -> Int64:
    """Return np.argsort(values, kind="stable") of whole numbers: four times as fast if they are in no order
    and as close to each other as the addresses of a device."""
    if not len(values):
        return np.zeros(0, np.int64)
    above = (values - values.min()).astype(np.uint64)
    used = int(np.bitwise_or.reduce(above))
    lowest = max(0, (used & -used).bit_length() - 1)  # bit: addresses are multiples of the allocator's unit
    place = len(values).bit_length()
    if used.bit_length() - lowest + place > 63:
        return np.argsort(values, kind="stable")
    # A value and its place in one number: all differ, so any sort is stable.
    keys = above >> np.uint64(lowest) << np.uint64(place) | np.arange(len(values), dtype=np.uint64)
    keys.sort()
    return (keys & np.uint64((1 << place) - 1)).astype(np.int64)
