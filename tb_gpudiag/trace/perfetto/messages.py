"""Read Protocol Buffers' wire format as columns: all messages of a kind at once, one field of each per round.

A file has millions of small messages, and reading them one by one takes Python 20 times as long. The format:
https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tb_gpudiag.arrays import Bool, Int64

_UInt64 = npt.NDArray[np.uint64]

VARINT, FIXED_64, SPAN, FIXED_32 = 0, 1, 2, 5
_FIXED_BYTES: Final = {FIXED_64: 8, FIXED_32: 4}
# More than the longest varint, so that a read at the end of the text stays inside.
_PADDING: Final = 16
# With fewer messages than this, reading them one by one is faster. A round costs as much as dozens of fields.
_FEWEST_AT_ONCE: Final = 48
_LONGEST_SHIFT: Final = 63
# What is read of so many messages takes some 100 MB.
_PIECE: Final = 1 << 19


class Messages(NamedTuple):
    """Places of messages in the text, shape (m,) each."""

    start: Int64
    end: Int64

    def at(self, rows: Int64 | Bool) -> Messages:
        """Return some of them."""
        return Messages(self.start[rows], self.end[rows])


class Entries(NamedTuple):
    """Fields of messages: sorted by message, then in file order. All arrays have shape (f,)."""

    message: Int64  # index of the message it is in
    number: Int64
    value: Int64  # of a number, as 64 bits with a sign; 0 for texts and messages
    inside: Messages  # the place of a text or message; empty for numbers

    def of(self, number: int) -> Entries:
        return self.at(np.flatnonzero(self.number == number))

    def at(self, rows: Int64) -> Entries:
        """Return some of them."""
        return Entries(self.message[rows], self.number[rows], self.value[rows], self.inside.at(rows))

    def pieces(self) -> Iterator[Entries]:
        """Yield the fields in order, some of them at a time."""
        for first in range(0, len(self.message), _PIECE):
            yield self.at(np.arange(first, min(first + _PIECE, len(self.message))))

    def values(self, number: int, count: int, missing: int) -> Int64:
        """Return the number that each of `count` messages has in this field, shape (count,): its last one."""
        found = self.of(number)
        column = np.full(count, missing, np.int64)
        column[found.message] = found.value
        return column


class Wire:
    """A text of messages."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._bytes = np.zeros(len(text) + _PADDING, np.uint8)
        self._bytes[: len(text)] = np.frombuffer(text, np.uint8)
        self.broken = 0
        """Messages that are damaged. The fields before the damage are read."""

    def entries(self, messages: Messages, *wanted: int) -> Entries:
        """Return the fields of messages that have one of these numbers."""
        keep = np.array(sorted(wanted))
        at, end = messages.start.copy(), messages.end
        rows = np.flatnonzero(at < end)
        rounds = []
        while len(rows) >= _FEWEST_AT_ONCE:
            found, at[rows], good = self._round(rows, at[rows], end[rows])
            self.broken += int((~good).sum())
            rounds.append(found.at(np.flatnonzero(good & np.isin(found.number, keep))))
            rows = rows[good & (at[rows] < end[rows])]
        one_by_one = [
            (row, *field)
            for row in rows.tolist()
            for field in self.walk(int(at[row]), int(end[row]))
            if field[0] in wanted
        ]
        table = np.array(one_by_one or np.zeros((0, 5)), np.int64)
        message, number, value, start, stop = table.T
        rounds.append(Entries(message, number, value, Messages(start, stop)))
        message, number, value, start, stop = (
            np.concatenate(column)
            for column in zip(*((e.message, e.number, e.value, *e.inside) for e in rounds), strict=True)
        )
        order = np.argsort(message, kind="stable")
        return Entries(message, number, value, Messages(start, stop)).at(order)

    def _round(self, rows: Int64, at: Int64, end: Int64) -> tuple[Entries, Int64, Bool]:
        """Read the next field of each message. Return the fields, where the next ones start, and which are
        whole."""
        key, at, good = self._varints(at, end)
        kind = (key & np.uint64(7)).astype(np.int64)
        value = np.zeros(len(rows), np.int64)
        start, stop = at.copy(), at.copy()
        counted = np.flatnonzero((kind == VARINT) | (kind == SPAN))
        number, at[counted], whole = self._varints(at[counted], end[counted])
        good[counted] &= whole
        value[counted] = number.astype(np.int64)
        spans = kind == SPAN
        start[spans] = at[spans]
        # A length above 2**63 is negative here.
        good[spans] &= (value[spans] >= 0) & (value[spans] <= (end - at)[spans])
        stop[spans] = at[spans] + np.where(good, value, 0)[spans]
        at[spans], value[spans] = stop[spans], 0
        for fixed, size in _FIXED_BYTES.items():
            own = np.flatnonzero(kind == fixed)
            whole = at[own] + size <= end[own]
            good[own] &= whole
            taken = self._bytes[np.where(whole, at[own], 0)[:, None] + np.arange(size)]
            value[own] = taken.view(f"<i{size}").reshape(-1)
            at[own] += size
        good &= (kind == VARINT) | spans | np.isin(kind, list(_FIXED_BYTES))
        return Entries(rows, (key >> np.uint64(3)).astype(np.int64), value, Messages(start, stop)), at, good

    def _varints(self, at: Int64, end: Int64) -> tuple[_UInt64, Int64, Bool]:
        """Read a varint at each place. Return the values, the places after them, and which are whole."""
        byte = self._bytes[np.minimum(at, len(self.text))]
        value = (byte & 127).astype(np.uint64)
        at = at + 1
        going, shift = np.flatnonzero(byte > 127), 7
        while len(going) and shift <= _LONGEST_SHIFT:
            byte = self._bytes[np.minimum(at[going], len(self.text))]
            value[going] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
            at[going] += 1
            going, shift = going[byte > 127], shift + 7
        good = at <= end
        good[going] = False
        return value, at, good

    def walk(self, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield number, value, and start and end of each field of one message."""
        while at < end:
            key, at = self._varint(at, end)
            number, kind = key >> 3, key & 7
            value, start, stop = 0, at, at
            if kind in (VARINT, SPAN):
                value, at = self._varint(at, end)
            if kind == SPAN:
                start, stop = at, at + value
                at, value = stop, 0
            elif kind in _FIXED_BYTES:
                stop = at = start + _FIXED_BYTES[kind]
                value = int.from_bytes(self.text[start:at], "little", signed=True)
                stop = start
            elif kind != VARINT:
                at = end + 1
            if at > end:
                self.broken += 1
                return
            yield number, value - (1 << 64) if value >= 1 << 63 else value, start, stop

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while at < end and shift <= _LONGEST_SHIFT:
            byte = self.text[at]
            value |= (byte & 127) << shift
            at += 1
            if byte < 128:
                return value & ((1 << 64) - 1), at
            shift += 7
        return 0, end + 1

    def fields(self, start: int, end: int) -> list[tuple[int, int, bytes]]:
        """Return number, value and text of each field of one message."""
        return [(number, value, self.text[a:b]) for number, value, a, b in self.walk(start, end)]

    def texts(self, places: Messages) -> pa.DictionaryArray:
        """Return the texts at these places, which are in file order, as an Arrow dictionary of bytes."""
        count = len(places.start)
        if not count:
            return pa.array([], pa.large_binary()).dictionary_encode()
        # Every other one of these is what lies between two texts.
        offsets = np.stack(places, axis=1).reshape(-1)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._bytes)]
        every = pa.Array.from_buffers(pa.large_binary(), 2 * count - 1, buffers)
        return every.take(pa.array(np.arange(0, 2 * count, 2))).dictionary_encode()
