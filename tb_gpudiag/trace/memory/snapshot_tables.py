"""Read what the compiled reader makes of a snapshot's pickle: columns of many dicts, and plain values.

A snapshot of millions of entries is as many dicts. As tables of numbers, they take a third of the memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64, places_of

try:
    from tb_gpudiag.trace.memory import _tables
except ImportError:  # not compiled: snapshot_pickle.py reads it
    _tables = None  # type: ignore[assignment]

MISSING: Final = -1
"""A value of a dict that does not have the key. What is there has another kind in its lowest bits."""

_KIND: Final = 7


class NotTables(Exception):
    """The tables have something that torch does not write: load_plain has to read the file."""


def available() -> bool:
    return _tables is not None


def read_tables(data: bytes) -> SnapshotTables | None:
    """Read a pickle into tables. None if it is not compiled, or if it is not as torch writes it: then
    load_plain reads it, or says what is wrong."""
    if not available():
        return None
    try:
        return SnapshotTables(_tables.Tables(data))
    except (_tables.GivenUp, IndexError, UnicodeDecodeError):
        return None


class SnapshotTables:
    """What a pickle of plain data has. A value is a number: see _tables.pyx."""

    def __init__(self, tables: _tables.Tables) -> None:
        self._tables = tables
        self._made: dict[int, Any] = {}

    def parts(self) -> dict[str, int] | None:
        """Return the values of the outermost dict by their keys; None if it is something else."""
        root = self._tables.root
        return self._pairs(root) if root & _KIND == _tables.DICT else None

    def _pairs(self, value: int) -> dict[str, int]:
        tables, number = self._tables, value >> _tables.KIND_BITS
        shape = int(tables.dict_shape[number])
        if shape == NONE:
            return {}
        keys, at = tables.shapes[shape], int(tables.dict_at[number])
        return dict(zip(keys, tables.values[at : at + len(keys)].tolist(), strict=True))

    def is_list(self, value: int) -> bool:
        return value & _KIND == _tables.LIST

    def length(self, value: int) -> int:
        """Return the length of a list."""
        return sum(size for _, size in self._chunks(value))

    def items(self, value: int) -> Int64:
        """Return the values in a list, shape (n,)."""
        found = [self._tables.items[at : at + size] for at, size in self._chunks(value)]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def _chunks(self, value: int) -> list[tuple[int, int]]:
        tables, found = self._tables, []
        chunk = int(tables.list_last[value >> _tables.KIND_BITS])
        while chunk != NONE:
            found.append((int(tables.chunk_at[chunk]), int(tables.chunk_size[chunk])))
            chunk = int(tables.chunk_before[chunk])
        return found[::-1]

    def dicts(self, values: Int64) -> Dicts:
        """Look up these values, shape (n,). What is no dict is as an empty one."""
        tables = self._tables
        number = np.where((values & _KIND) == _tables.DICT, values >> _tables.KIND_BITS, NONE)
        # The last one is that of NONE.
        shape, first = np.append(tables.dict_shape, np.int32(NONE)), np.append(tables.dict_at, 0)
        return Dicts(tables, shape[number], first[number])

    def numbers(self, values: Int64) -> tuple[Int64, Bool]:
        """Return whole numbers, 0 for other values, and a mask of those that are numbers, shape (n,) each.

        True counts as 1, as in Python. Raises NotTables for what Python may also turn into a number.
        """
        kind, number = values & _KIND, values >> _tables.KIND_BITS
        known = kind == _tables.INTEGER
        if known.all():
            return number, known
        if np.isin(kind[values != MISSING], (_tables.TEXT, _tables.OTHER)).any():
            raise NotTables
        truth = (kind == _tables.CONSTANT) & (number > 0)
        known |= truth
        return np.where(known, number - truth, 0), known

    def codes(self, values: Int64, of_text: Mapping[str, int], other: int) -> tuple[Int64, Bool]:
        """Return the codes of texts, and a mask of those that are texts, shape (n,) each."""
        code = np.array([of_text.get(text, other) for text in self._tables.texts] + [other])
        known = (values != MISSING) & (values & _KIND == _tables.TEXT)
        return code[np.where(known, values >> _tables.KIND_BITS, -1)], known

    def distinct(self, lists: Int64) -> tuple[Int64, Int64]:
        """Group lists by their content: (one value of each group, the group of each), shapes (g,) and (n,).

        The group that comes first has number 0. Lists in several chunks are groups of their own, and other
        values a group for each kind.
        """
        of_list = self._contents()
        is_list = (lists & _KIND) == _tables.LIST
        # Other values have the numbers after those of the lists.
        number = of_list.max(initial=0) + 1 + (lists & _KIND)
        number[is_list] = of_list[lists[is_list] >> _tables.KIND_BITS]
        first = np.full(number.max(initial=0) + 1, len(lists))
        first[number[::-1]] = np.arange(len(lists) - 1, -1, -1)  # of several places the last one stays
        used = np.flatnonzero(first < len(lists))
        in_order = used[np.argsort(first[used])]
        return lists[first[in_order]], places_of(in_order, len(first))[number]

    def _contents(self) -> Int64:
        """Return a number for the content of each list, shape (l,)."""
        tables = self._tables
        last = tables.list_last
        # Short lists of equal content are at the same place, and no others.
        number = len(tables.items) + np.where(last == NONE, 0, 1 + np.arange(len(last)))
        short = last != NONE
        short[short] = tables.chunk_before[last[short]] == NONE
        number[short] = tables.chunk_at[last[short]]
        return number

    def plain(self, value: int) -> Any:
        """Return a value as Python's own; None for MISSING. The same list or dict is the same object each
        time."""
        if value == MISSING:
            return None
        kind, number = value & _KIND, value >> _tables.KIND_BITS
        if kind in (_tables.LIST, _tables.DICT):
            return self._container(kind, value)
        if kind == _tables.PAIR:
            half = _tables.HALF_PAIR
            return (number >> _tables.PAIR_BITS) - half, (number & (2 * half - 1)) - half
        if kind == _tables.INTEGER:
            return number
        tables = self._tables
        of_kind = {_tables.TEXT: tables.texts, _tables.OTHER: tables.others}
        return of_kind.get(kind, _tables.NONE_FALSE_TRUE)[number]

    def _container(self, kind: int, value: int) -> Any:
        made = self._made.get(value)
        if made is None:
            # Not deep: the reader gives up on what is.
            if kind == _tables.LIST:
                known = self._made  # stacks share most of their frames
                items = self.items(value).tolist()
                made = [known[item] if item in known else self.plain(item) for item in items]
            else:
                made = {key: self.plain(item) for key, item in self._pairs(value).items()}
            self._made[value] = made
        return made


class Dicts:
    """Many dicts of the tables, to look up what they have under a key."""

    def __init__(self, tables: _tables.Tables, shape: Int32, first: Int64) -> None:
        """shape, first: as `dict_shape` and `dict_at` of the tables, shape (n,) each."""
        self._tables, self._shape, self._first = tables, shape, first

    def __len__(self) -> int:
        return len(self._shape)

    def at(self, rows: Int64) -> Dicts:
        """Return the dicts at these indices."""
        return Dicts(self._tables, self._shape[rows], self._first[rows])

    def all_have(self, key: str) -> bool:
        return bool((self._place(key) != NONE).all())

    def column(self, key: str) -> Int64:
        """Return the value of a key in each dict, or MISSING, shape (n,)."""
        place = self._place(key)
        found: Int64 = np.full(len(self), MISSING, np.int64)
        has = place != NONE
        if has.all():
            return self._tables.values[self._first + place]
        found[has] = self._tables.values[self._first[has] + place[has]]
        return found

    def _place(self, key: str) -> Int64:
        """Return which of the values of each dict a key has, or NONE, shape (n,)."""
        place = [keys.index(key) if key in keys else NONE for keys in self._tables.shapes]
        return np.array([*place, NONE])[self._shape]  # an empty dict has the last one
