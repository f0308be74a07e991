"""What the events of a chunk have in each field, whichever parser read them. Fields have our names (see
kineto.py)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.arrays import NONE, Bool, Float64, Int32, Int64

Rows = Int64
"""Places of events in a chunk, ascending."""


class Fields(Protocol):
    """Fields of the events of a chunk. `where`: a mask of the rows that are read; the others have nothing."""

    count: int
    """Events in the chunk."""

    def known(self, name: str) -> Bool:
        """Mask of the events that have this field, shape (count,)."""

    def equal(self, name: str, text: str) -> Bool:
        """Mask of the events whose field is this text, shape (count,)."""

    def texts(
        self, name: str, rows: Rows | None = None, *, where: Bool | None = None, cut: int = 0, most: int = 0
    ) -> pa.DictionaryArray:
        """Return the texts at these rows, or at all, with "" for missing ones. The dictionary has exactly
        these texts, in order of first appearance.

        cut: keep this many characters of a longer one. most: leave a text out that has more bytes.
        """

    def numbers(self, name: str, rows: Rows, missing: int = NONE) -> Int64:
        """Return the integers at these rows."""

    def decimals(self, name: str, rows: Rows, where: Bool) -> Float64:
        """Return the numbers at these rows, NaN for missing ones."""

    def nanoseconds(self, name: str) -> tuple[Int64, Bool]:
        """Return the times of all events in ns, and a mask of those that are known."""

    def group(self, name: str) -> Fields | None:
        """Return the fields of a group of kineto.SELDOM; None if no event has one of them."""

    def counters(self) -> dict[str, pa.Array]:
        """Return the columns of kineto.COUNTERS; none if they cannot be read."""


class ParsedFields:
    """Fields in Arrow arrays, as DuckDB returns them."""

    def __init__(self, columns: dict[str, pa.Array], seldom: Callable[[str], dict[str, pa.Array]]) -> None:
        """columns: those of kineto.FIELDS and ARGUMENTS. seldom: reads those of a group, or "counters"."""
        self._columns = columns
        self._seldom = seldom
        self.count = len(next(iter(columns.values())))

    def known(self, name: str) -> Bool:
        return np.asarray(pc.is_valid(self._columns[name]).to_numpy(zero_copy_only=False), np.bool_)

    def equal(self, name: str, text: str) -> Bool:
        column = self._columns[name]
        equal = pc.fill_null(pc.equal(column, scalar(text, column.type)), scalar(False, pa.bool_()))
        return np.asarray(equal.to_numpy(zero_copy_only=False), np.bool_)

    def texts(
        self, name: str, rows: Rows | None = None, *, where: Bool | None = None, cut: int = 0, most: int = 0
    ) -> pa.DictionaryArray:
        texts = self._columns[name] if rows is None else self._columns[name].take(indices(rows))
        if where is not None:
            texts = pc.if_else(pa.array(where), texts, "")
        if most:
            texts = pc.if_else(pc.fill_null(pc.less_equal(pc.binary_length(texts), most), False), texts, "")
        if len(texts) and texts.null_count == len(texts):
            return all_empty(len(texts), texts.type)
        encoded = pc.fill_null(texts, scalar("", texts.type)).dictionary_encode()
        return shortened(encoded, cut) if cut else encoded

    def numbers(self, name: str, rows: Rows, missing: int = NONE) -> Int64:
        return _filled(self._columns[name], missing)[rows].astype(np.int64)

    def decimals(self, name: str, rows: Rows, where: Bool) -> Float64:
        values = np.asarray(pc.fill_null(self._columns[name], np.nan).to_numpy(), np.float64)[rows]
        return np.where(where, values, np.nan)

    def nanoseconds(self, name: str) -> tuple[Int64, Bool]:
        """Such a decimal is stored as a whole number of ns with 128 bits. Its low 64 bits are the value if it
        fits."""
        column = self._columns[name]
        known = self.known(name)
        data = column.buffers()[1]
        if data is None or not len(column):
            return np.zeros(len(column), np.int64), known
        halves = np.frombuffer(data, np.int64)[2 * column.offset : 2 * (column.offset + len(column))]
        low, high = halves.reshape(-1, 2).T
        known &= high == low >> 63
        return np.where(known, low, 0), known

    def group(self, name: str) -> ParsedFields | None:
        found = self._seldom(name)
        return ParsedFields(found, self._seldom) if found else None

    def counters(self) -> dict[str, pa.Array]:
        return self._seldom("counters")


def shortened(texts: pa.DictionaryArray, longest: int) -> pa.DictionaryArray:
    """Cut the texts that have more characters."""
    if (pc.max(pc.binary_length(texts.dictionary)).as_py() or 0) <= longest:
        return texts
    short = pc.utf8_slice_codeunits(texts.dictionary, 0, longest)
    return short.take(texts.indices).dictionary_encode()


def compacted(codes: Int32, dictionary: pa.Array) -> pa.DictionaryArray:
    """Make a dictionary of the texts in use, in order of first appearance. codes: into `dictionary`."""
    order, new = numbered(codes, len(dictionary))
    return pa.DictionaryArray.from_arrays(indices32(new), dictionary.take(indices(order)))


def numbered(values: npt.NDArray[np.integer[Any]], bound: int) -> tuple[Int64, Int32]:
    """Return the different values (0 to bound - 1), in order of first appearance, and the number of each
    value among them."""
    count = len(values)
    first = np.full(bound, count, np.int64)
    first[values[::-1]] = np.arange(count - 1, -1, -1)
    used = np.flatnonzero(first < count)
    order = used[np.argsort(first[used])]
    new = np.zeros(bound, np.int32)
    new[order] = np.arange(len(order))
    return order, new[values]


def indices(rows: npt.NDArray[np.int64]) -> pa.Array:
    """Return rows for `take`. Not `pa.array`: for each new array, that looks for pandas, which is slow if
    pandas is not installed."""
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows))])


def indices32(codes: Int32) -> pa.Array:
    """Return the codes of a dictionary, likewise."""
    return pa.Array.from_buffers(pa.int32(), len(codes), [None, pa.py_buffer(np.ascontiguousarray(codes))])


@functools.cache
def scalar(value: int | float | str, kind: pa.DataType) -> pa.Scalar:
    """Return a value for Arrow. Cached: pyarrow looks for pandas here, too."""
    return pa.scalar(value, kind)


def all_empty(count: int, kind: pa.DataType | None = None) -> pa.DictionaryArray:
    """Return so many empty texts."""
    return pa.DictionaryArray.from_arrays(
        indices32(np.zeros(count, np.int32)), _one_empty(kind or pa.string())
    )


@functools.cache
def _one_empty(kind: pa.DataType) -> pa.Array:
    return pa.array([""], kind)


def _filled(column: pa.Array, value: int) -> npt.NDArray[Any]:
    if column.null_count == len(column):
        return np.full(len(column), value, np.dtype(str(column.type)))
    return np.asarray(pc.fill_null(column, scalar(value, column.type)).to_numpy())
