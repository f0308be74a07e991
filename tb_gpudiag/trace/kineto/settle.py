"""Parse JSON text into a TracePart: with the compiled scanner, if it is installed, or with Python's json.

The scanner knows the JSON that profilers write. It gives up on a chunk with anything else in it, which
fields.py then reads. So results do not depend on the scanner.

There are three reasons why a text does not parse as it is: the array ends in it, it is cut inside an element,
or something in it is not JSON. First, scan its brackets for the end of the array and the last whole element,
and parse the text up to there. If that fails, repair the text (`repair`) and try again. If that fails too,
save the events one by one (`pieces`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from threading import Lock
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Bool, Float64, Int64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.kineto import kineto
from tb_gpudiag.trace.kineto.columns import part_of
from tb_gpudiag.trace.kineto.fields import CounterEvent, Fields, indices32, read_plain
from tb_gpudiag.trace.kineto.kineto import Form
from tb_gpudiag.trace.kineto.pieces import Salvaged, by_brackets, salvage
from tb_gpudiag.trace.kineto.structure import elements, repaired
from tb_gpudiag.trace.kineto.top import too_deep
from tb_gpudiag.trace.trace_parts import TracePart

try:
    from tb_gpudiag.trace.kineto import _rows, _scan, _texts
except ImportError:  # there was no C compiler when gpudiag was installed
    _rows = _scan = _texts = None  # type: ignore[assignment]


class GivenUp(Exception):
    """The plain parser has to read this chunk."""


def available() -> bool:
    """Return whether the scanner is installed."""
    return _scan is not None


_COLUMNS: Final = [*kineto.FIELDS, "args", *kineto.ARGUMENTS]
# Texts of most events. The scanner numbers them; of others, it keeps the places.
_NUMBERED: Final = frozenset(
    {"phase", "category", "name", "pid", "tid", "call_stack", "called_from", "input_shapes"}
)
# Of a place in the scanner's table: the bits of its length.
_LENGTH: Final = (1 << 31) - 1
# Different texts in a chunk, at most. A chunk of real events has a few thousand.
MOST_TEXTS: Final = 1 << 15
_COLUMN_OF: Final = {name: number for number, name in enumerate(_COLUMNS)}


class Scanner:
    """Scanner for one thread."""

    def __init__(self, most_events: int, most_texts: int = MOST_TEXTS) -> None:
        """most_events: in a text. most_texts: different ones in it, a power of two."""
        kinds = {
            Form.TEXT: _scan.SELDOM_TEXT,
            Form.INTEGER: _scan.INTEGER,
            Form.ADDRESS: _scan.INTEGER,
            Form.DECIMAL: _scan.SELDOM_TEXT,
            Form.MICROSECONDS: _scan.MICROSECONDS,
        }

        def keys(fields: dict[str, tuple[str, Form]]) -> list[tuple[bytes, int, int]]:
            return [
                (key.encode(), _scan.TEXT if name in _NUMBERED else kinds[form], _COLUMN_OF[name])
                for name, (key, form) in fields.items()
            ]

        event = [*keys(kineto.FIELDS), (b"args", _scan.ARGUMENTS, _COLUMN_OF["args"])]
        # The memory of rows that no chunk has is never touched.
        self._values = np.empty((len(_COLUMNS), most_events), np.int64)
        self._present = np.empty(most_events, np.uint64)
        self._places = np.empty(most_texts, np.int64)
        hashes = np.empty(most_texts, np.uint64)
        table = np.empty(2 * most_texts, np.int32)
        self._scanner = _scan.Scanner(
            event, keys(kineto.ARGUMENTS), self._values, self._present, self._places, hashes, table
        )

    def scan(self, text: bytes) -> ScannedFields | None:
        """Return the fields of an array of events, until the next call; None if the scanner gives up."""
        count = self._scanner.scan(text)
        if count == _scan.GIVEN_UP:
            return None
        places = self._places[: self._scanner.texts]
        return ScannedFields(text, self._values[:, :count], self._present[:count], places)


class ScannedFields(Fields):
    """Fields as the scanner finds them. Any method raises GivenUp if the plain parser has to read them."""

    def __init__(self, text: bytes, values: Int64, present: npt.NDArray[np.uint64], places: Int64) -> None:
        super().__init__(len(present))
        self._text = text
        self._values = values
        self._present = present
        self._places = places

    def known(self, name: str) -> Bool:
        return (self._present >> np.uint64(_COLUMN_OF[name]) & np.uint64(1)).astype(np.bool_)

    def numbers(self, name: str, rows: Int64, missing: int = NONE) -> Int64:
        taken = np.empty(len(rows), np.int64)
        column = _COLUMN_OF[name]
        _rows.take(self._values[column], self._present, column, rows, missing, taken)
        return taken

    def decimals(self, name: str, rows: Int64, where: Bool) -> Float64:
        own = np.flatnonzero(where)
        decimals = np.full(len(rows), np.nan)
        encoded = self._decoded(self.numbers(name, rows[own]), numbers=True).dictionary_encode()
        table = np.array([float(text or "nan") for text in encoded.dictionary.to_pylist()] or [np.nan])
        decimals[own] = table[encoded.indices.to_numpy()]
        return decimals

    def nanoseconds(self, name: str) -> tuple[Int64, Bool]:
        known = self.known(name)
        return np.where(known, self._values[_COLUMN_OF[name]], 0), known

    def counters(self, rows: Int64) -> Iterable[CounterEvent]:
        plain = read_plain(self._text)
        if plain is None:
            raise GivenUp
        return plain.counters(rows)

    def _encoded(self, name: str, rows: Int64, where: Bool | None) -> pa.DictionaryArray:
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
        offsets = np.empty(len(places) + 1, np.int32)
        out = np.empty(int((places[places >= 0] & _LENGTH).sum()), np.uint8)
        if _texts.read_texts(self._text, places, out, offsets, numbers) == _texts.GIVEN_UP:
            raise GivenUp
        buffers: Any = [None, pa.py_buffer(offsets), pa.py_buffer(out)]
        return pa.Array.from_buffers(pa.string(), len(places), buffers)


# A chunk of real events has fewer than 30,000.
_MOST_SCANNED: Final = 1 << 16
_LEAST_ROOM_BYTES: Final = 4 << 10
# A text of this size or more gets all the room.
_MOST_SCANNED_BYTES: Final = 8 * _MOST_SCANNED


class Parser:
    """Parser for one thread."""

    def __init__(self, columns_lock: Lock | None = None) -> None:
        """columns_lock: shared by parsers that work at the same time. Making columns is some hundred short
        NumPy calls. Two threads at it keep taking Python's lock from each other, which doubles the CPU time.
        """
        self._columns_lock = columns_lock or Lock()
        self._scans = available()
        self._scanner: Scanner | None = None
        self._room = 0

    def parse(self, text: bytes) -> TracePart | None:
        """Parse a JSON array of events. Return None if the text is not JSON."""
        fields = self._scanner_for(text).scan(text) if self._scans else None
        if fields is not None:
            try:
                with self._columns_lock:
                    return part_of(fields)
            except GivenUp:
                pass
        plain = read_plain(text)
        return None if plain is None else part_of(plain)

    def _scanner_for(self, text: bytes) -> Scanner:
        """Return a scanner with room for all events of the text: making room for thousands takes longer than
        reading some."""
        if self._scanner is None or self._room < min(len(text), _MOST_SCANNED_BYTES):
            self._room = min(max(1 << len(text).bit_length(), _LEAST_ROOM_BYTES), _MOST_SCANNED_BYTES)
            # No event is shorter than "{},", and none of the texts that the scanner numbers than '"ph":"X",'.
            most_events = min(self._room // 3, _MOST_SCANNED)
            self._scanner = Scanner(most_events, min(self._room // 8, MOST_TEXTS))
        return self._scanner


_SPACE: Final = b" \t\r\n"


@dataclass(frozen=True, eq=False)
class Settled:
    """What was read from a text."""

    part: TracePart | None  # the whole elements
    malformed: int = 0  # elements skipped, in addition to those that `part` counts
    repaired: bool = False  # something was not JSON and could be repaired
    leftover: bytes = b""  # the start of an element that ends after the text
    ended: bool = False  # the array ends in the text
    rest: bytes = b""  # the text after the end of the array


class Settler:
    """Settles texts of one file."""

    def __init__(self, limits: Limits, path: str) -> None:
        self.limits = limits
        self.path = path
        self._parser = Parser()

    def settle(self, text: bytes, final: bool) -> Settled:
        """Settle text that starts between two elements. `final`: nothing follows it in the file.

        Raises TooDeep.
        """
        settled = self._by_structure(text, final)
        if settled is not None:
            return settled
        fixed = repaired(text)
        if fixed != text:
            settled = self._by_structure(fixed, final)
            if settled is not None:
                return replace(settled, repaired=True)
        settled = self._by_pieces(fixed, final)
        return replace(settled, repaired=text.translate(None, _SPACE) != fixed.translate(None, _SPACE))

    def give_up(self, text: bytes) -> Settled:
        """Settle text that may be one endless element. The leftover is that element, if there is one."""
        if b"{" not in text:  # no events, and perhaps millions of numbers
            return Settled(None, leftover=text)
        return self._by_pieces(repaired(text), final=False)

    def _by_structure(self, text: bytes, final: bool) -> Settled | None:
        """Settle text whose whole elements are all JSON; return None if they are not."""
        split = by_brackets(text, elements(text), self.limits, final=final)
        settled = None if split is None else self._settled(split, split.max_depth)
        return None if settled is None or settled.part is None else settled

    def _by_pieces(self, text: bytes, final: bool) -> Settled:
        """Settle text in which some elements are not JSON."""
        salvaged = salvage(text, final)
        if salvaged.max_depth > self.limits.max_depth:
            raise too_deep(self.path, self.limits)
        return self._settled(salvaged, elements(salvaged.accepted).depth)

    def _settled(self, found: Salvaged, depth: int) -> Settled:
        """Parse the elements that were found. `part` is None if they are not JSON."""
        part = self._parser.parse(b"[" + found.accepted.rstrip(_SPACE + b",") + b"]")
        if part is not None and depth > self.limits.max_depth:
            raise too_deep(self.path, self.limits)
        ended, rest = found.rest is not None, found.rest or b""
        return Settled(part, found.malformed, leftover=found.leftover, ended=ended, rest=rest)
