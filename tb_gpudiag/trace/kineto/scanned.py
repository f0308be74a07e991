"""Read a chunk of events with the compiled scanner, if it is installed.

The scanner knows the JSON that profilers write. It gives up on a chunk with anything else in it, which DuckDB
then reads. So results do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.arrays import NONE, Bool, Float64, Int32, Int64
from tb_gpudiag.trace.kineto import kineto
from tb_gpudiag.trace.kineto.fields import Rows, compacted, indices32, scalar, shortened

try:
    from tb_gpudiag.trace.kineto import _rows, _scan, _texts
except ImportError:  # there was no C compiler when gpudiag was installed
    _rows = _scan = _texts = None  # type: ignore[assignment]


class GivenUp(Exception):
    """DuckDB has to read this chunk."""


def available() -> bool:
    """Return whether the scanner is installed."""
    return _scan is not None


_COLUMNS: Final = [
    *kineto.FIELDS,
    "args",
    *kineto.ARGUMENTS,
    *(name for group in kineto.SELDOM.values() for name in group),
]
# Texts of most events. The scanner numbers them; of others, it keeps the places.
_NUMBERED: Final = frozenset({"phase", "category", "name", "pid", "tid", "call_stack", "input_shapes"})
# Of a place in the scanner's table: the bits of its length.
_LENGTH: Final = (1 << 31) - 1
# Different texts in a chunk, at most. A chunk of real events has a few thousand.
_MOST_TEXTS: Final = 1 << 15
_COLUMN_OF: Final = {name: number for number, name in enumerate(_COLUMNS)}


class Scanner:
    """Scanner for one thread."""

    def __init__(self, most_events: int) -> None:
        kinds = {
            "BIGINT": _scan.INTEGER,
            "UBIGINT": _scan.INTEGER,
            "DOUBLE": _scan.SELDOM_TEXT,
            "DECIMAL(22,3)": _scan.MICROSECONDS,
        }

        def fields(columns: dict[str, tuple[str, str]]) -> list[tuple[bytes, int, int]]:
            return [
                (key.encode(), kind_of(name, kind), _COLUMN_OF[name]) for name, (key, kind) in columns.items()
            ]

        def kind_of(name: str, kind: str) -> int:
            text = _scan.TEXT if name in _NUMBERED else _scan.SELDOM_TEXT
            return text if kind == "VARCHAR" else kinds[kind]

        event = [*fields(kineto.FIELDS), (b"args", _scan.ARGUMENTS, _COLUMN_OF["args"])]
        arguments = fields(kineto.ARGUMENTS)
        for group in kineto.SELDOM.values():
            arguments += fields(group)
        # The memory of rows that no chunk has is never touched.
        self._values = np.empty((len(_COLUMNS), most_events), np.int64)
        self._present = np.empty(most_events, np.uint64)
        self._places = np.empty(_MOST_TEXTS, np.int64)
        hashes = np.empty(_MOST_TEXTS, np.uint64)
        table = np.empty(2 * _MOST_TEXTS, np.int32)
        self._scanner = _scan.Scanner(
            event, arguments, self._values, self._present, self._places, hashes, table
        )

    def scan(self, text: bytes, counters: Callable[[], dict[str, pa.Array]]) -> ScannedFields | None:
        """Return the fields of an array of events, until the next call; None if DuckDB has to read it.

        counters: reads the columns of kineto.COUNTERS.
        """
        count = self._scanner.scan(text)
        if count == _scan.GIVEN_UP:
            return None
        return ScannedFields(
            text,
            self._values[:, :count],
            self._present[:count],
            self._places[: self._scanner.texts],
            counters,
        )


class ScannedFields:
    """Fields as the scanner finds them. Any method raises GivenUp if DuckDB has to read them."""

    def __init__(
        self,
        text: bytes,
        values: Int64,
        present: npt.NDArray[np.uint64],
        places: Int64,
        counters: Callable[[], dict[str, pa.Array]],
    ) -> None:
        self._text = text
        self._values = values
        self._present = present
        self._places = places
        self._whole: dict[str, pa.DictionaryArray] = {}
        self.count = len(present)
        self.counters = counters

    def known(self, name: str) -> Bool:
        known: Bool = (self._present >> np.uint64(_COLUMN_OF[name]) & np.uint64(1)).astype(np.bool_)
        return known

    def equal(self, name: str, text: str) -> Bool:
        encoded = self.texts(name)
        place = pc.index(encoded.dictionary, scalar(text, encoded.dictionary.type)).as_py()
        equal: Bool = encoded.indices.to_numpy() == place
        return equal

    def texts(
        self, name: str, rows: Rows | None = None, *, where: Bool | None = None, cut: int = 0, most: int = 0
    ) -> pa.DictionaryArray:
        if rows is None:
            encoded = self._of_all(name)
        elif name in self._whole and where is None:
            whole = self._whole[name]
            encoded = compacted(whole.indices.to_numpy()[rows], whole.dictionary)
        else:
            encoded = self._encoded(name, rows, where)
        if most:
            encoded = _without_longer(encoded, most)
        return shortened(encoded, cut) if cut else encoded

    def numbers(self, name: str, rows: Rows, missing: int = NONE) -> Int64:
        taken = np.empty(len(rows), np.int64)
        column = _COLUMN_OF[name]
        _rows.take(self._values[column], self._present, column, rows, missing, taken)
        return taken

    def decimals(self, name: str, rows: Rows, where: Bool) -> Float64:
        own = np.flatnonzero(where)
        decimals = np.full(len(rows), np.nan)
        encoded = self._decoded(self.numbers(name, rows[own]), numbers=True).dictionary_encode()
        table = np.array([float(text or "nan") for text in encoded.dictionary.to_pylist()] or [np.nan])
        decimals[own] = table[encoded.indices.to_numpy()]
        return decimals

    def nanoseconds(self, name: str) -> tuple[Int64, Bool]:
        known = self.known(name)
        return np.where(known, self._values[_COLUMN_OF[name]], 0), known

    def group(self, name: str) -> ScannedFields | None:
        bits = sum(1 << _COLUMN_OF[column] for column in kineto.SELDOM[name])
        return self if (self._present & np.uint64(bits)).any() else None

    def _of_all(self, name: str) -> pa.DictionaryArray:
        if name not in self._whole:
            self._whole[name] = self._encoded(name, np.arange(self.count), None)
        return self._whole[name]

    def _encoded(self, name: str, rows: Rows, where: Bool | None) -> pa.DictionaryArray:
        if name not in _NUMBERED:
            found = self.numbers(name, rows)
            if where is not None:
                found[~where] = NONE
            return self._decoded(found).dictionary_encode()
        numbers = np.full(len(self._places) + 1, NONE, np.int32)
        found = np.empty(len(numbers), np.int64)
        codes = np.empty(len(rows), np.int32)
        column = _COLUMN_OF[name]
        some = np.zeros(0, np.uint8) if where is None else where.view(np.uint8)
        count = _rows.number(
            self._values[column], self._present, column, rows, some, self._places, numbers, found, codes
        )
        encoded = self._decoded(found[:count]).dictionary_encode()
        if len(encoded.dictionary) < count:  # one text is written in several ways
            codes = encoded.indices.to_numpy()[codes]
        return pa.DictionaryArray.from_arrays(indices32(codes), encoded.dictionary)

    def _decoded(self, places: Int64, numbers: bool = False) -> pa.Array:
        """Return the texts at these places."""
        offsets = np.empty(len(places) + 1, np.int32)
        out = np.empty(int((places[places >= 0] & _LENGTH).sum()), np.uint8)
        if _texts.read_texts(self._text, places, out, offsets, numbers) == _texts.GIVEN_UP:
            raise GivenUp
        buffers: Any = [None, pa.py_buffer(offsets), pa.py_buffer(out)]
        return pa.Array.from_buffers(pa.string(), len(places), buffers)


def _without_longer(texts: pa.DictionaryArray, most: int) -> pa.DictionaryArray:
    """Replace the texts with more bytes by ""."""
    if (pc.max(pc.binary_length(texts.dictionary)).as_py() or 0) <= most:
        return texts
    short = pc.if_else(pc.less_equal(pc.binary_length(texts.dictionary), most), texts.dictionary, "")
    encoded = short.dictionary_encode()
    codes: Int32 = encoded.indices.to_numpy()[texts.indices.to_numpy()]
    return compacted(codes, encoded.dictionary)
