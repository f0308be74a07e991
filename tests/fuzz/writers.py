"""Write a document, whatever is in it, in the form of a file: JSON, pickle, Protocol Buffers, TensorBoard's
event files and SQLite.

Each writes what the form can hold of any value: no number is too large, no text too odd, nothing too deep.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import reprlib
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from tests.fuzz.odd_values import Again, Deep, Single

_DEEP: Final = re.compile(r'"deep-(\d+)"')
_MOST_VALUES: Final = 3_000
"""A form without references writes what is shared as often as it is met, up to so many values."""


def as_json(document: Any, draw: random.Random) -> bytes:
    """Return JSON as Python writes it: with `Infinity` and `NaN`, and with fields that are there twice."""
    text = json.dumps(_unshared(document), ensure_ascii=draw.random() < 0.5)
    opens, nothing, closes = draw.choice((("[", "", "]"), ('{"a":', "0", "}")))
    text = _DEEP.sub(lambda m: opens * int(m[1]) + nothing + closes * int(m[1]), text)
    return text.encode("utf-8", "surrogatepass")


def _unshared(document: Any) -> Any:
    """Return a document in which no two values are the same object."""
    left = _MOST_VALUES

    def of(value: Any) -> Any:
        nonlocal left
        left -= 1
        if value.__class__ is dict:
            return {key: of(each) for key, each in value.items() if left > 0}
        return [of(each) for each in value if left > 0] if value.__class__ is list else value

    return of(document)


_SHORT_TUPLES: Final = {1: b"\x85", 2: b"\x86", 3: b"\x87"}
_TUPLES_SHARE: Final = 0.1


class _Pickle:
    """Writes a pickle as torch's own writer does: objects that are the same are written once."""

    def __init__(self, draw: random.Random) -> None:
        self._as_tuples = draw.random() < _TUPLES_SHARE
        self._draw = draw
        self._memo: dict[Any, int] = {}
        self._parts: list[bytes] = [b"\x80\x02"]

    def write(self, document: Any) -> bytes:
        self._value(document)
        return b"".join([*self._parts, b"."])

    def _value(self, value: Any) -> None:
        key = value if type(value) is str else id(value)
        if key in self._memo:
            self._parts.append(b"j" + struct.pack("<I", self._memo[key]))
            return
        if isinstance(value, Deep):
            self._parts.append(b"]" * value.depth + b"a" * (value.depth - 1))
        elif isinstance(value, str):
            text = value.encode("utf-8", "surrogatepass")
            self._parts.append(b"X" + struct.pack("<I", len(text)) + text)
        elif isinstance(value, dict):
            self._parts.append(b"}(")
            for name, each in value.items():
                self._value(str(name) if isinstance(name, Again) else name)
                self._value(each)
            self._parts.append(b"u")
        elif isinstance(value, list | tuple):
            self._elements(value, isinstance(value, tuple) or (self._as_tuples and self._draw.random() < 0.3))
        else:
            self._parts.append(_scalar(value))
            return
        self._memo[key] = len(self._memo)
        self._parts.append(b"r" + struct.pack("<I", self._memo[key]))

    def _elements(self, values: Sequence[Any], as_tuple: bool) -> None:
        short = _SHORT_TUPLES.get(len(values), b"") if as_tuple else b""
        self._parts.append(b"" if short else b"(" if as_tuple else b"](")
        for each in values:
            self._value(each)
        self._parts.append(short or (b"t" if as_tuple else b"e"))


def _scalar(value: Any) -> bytes:
    if value is None or isinstance(value, bool):
        return b"N" if value is None else b"\x88" if value else b"\x89"
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    content = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(content)]) + content


def as_pickle(document: Any, draw: random.Random) -> bytes:
    """Return a pickle of plain data. In some files, lists are tuples."""
    return _Pickle(draw).write(document)


def as_wire(document: Any, draw: random.Random) -> bytes:
    """Return a message of Protocol Buffers. document: [number, value] of each field, in order.

    A list is a message, a whole number a varint, a float a double. Other values are texts.
    """
    return _Wire(draw).message(document)


class _Wire:
    """Writes messages, of at most so many fields in all."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._left = _MOST_VALUES

    def message(self, fields: Any) -> bytes:
        """Return the fields of a message; nothing of what is no list."""
        return b"".join(map(self._field, fields)) if isinstance(fields, list) else b""

    def _field(self, entry: Any) -> bytes:
        """Write one field; what is no pair of a number and a value is written as bytes that mean nothing."""
        self._left -= 1
        if self._left < 0:
            return b""
        if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], int)):
            return _varint(self._draw.randrange(2**16))
        number, value = entry[0] % 2**29 << 3, entry[1]
        if isinstance(value, int):
            return _varint(number) + _varint(value)
        if isinstance(value, list):
            inside = self.message(value)
        elif isinstance(value, Single):
            return _varint(number | 5) + struct.pack("<f", value)
        elif isinstance(value, float):
            return _varint(number | 1) + struct.pack("<d", value)
        elif isinstance(value, Deep):
            inside = _nested(number, value.depth)
        else:  # what is shared in a dict would be written without an end
            inside = ("" if isinstance(value, dict) else str(value)).encode("utf-8", "surrogatepass")
        return _varint(number | 2) + _varint(len(inside)) + inside


def _nested(number: int, depth: int) -> bytes:
    """Return a message in a message, and so on, without writing an inner one again for each outer one."""
    heads, size = list[bytes](), 0
    for _ in range(depth):
        heads.append(_varint(number | 2) + _varint(size))
        size += len(heads[-1])
    return b"".join(reversed(heads))


_SHORT_VARINTS: Final = [bytes([value]) for value in range(128)]


def _varint(value: int) -> bytes:
    """Write a number in 64 bits; a larger one with more bytes than there may be."""
    if 0 <= value < 128:
        return _SHORT_VARINTS[value]
    value = value % 2**64 if value < 2**64 else value
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


def as_events(document: Any, draw: random.Random) -> bytes:
    """Return an event file. document: a message of each record."""
    records, wire = document if isinstance(document, list) else [], _Wire(draw)
    return b"".join(_record(wire.message(message), draw) for message in records[:_MOST_VALUES])


def _record(content: bytes, draw: random.Random) -> bytes:
    size = len(content) if draw.random() < 0.98 else draw.choice((0, 1, 4_097, 2**31, 2**63, 2**64 - 1))
    return struct.pack("<QI", size, 0) + content + bytes(4)


def as_database(document: Any, draw: random.Random) -> bytes:
    """Return an SQLite file. document: the rows of each table, by name.

    Each table is one page (https://sqlite.org/fileformat.html). SQLite itself takes ten times as long.
    """
    tables = document if isinstance(document, dict) else {}
    written = [_table(str(name), rows if isinstance(rows, list) else [rows]) for name, rows in tables.items()]
    master = [
        _cell_of(number, ["table", name, name, number + 1, sql])
        for number, (name, sql, _) in enumerate(written, 1)
    ]
    contents = [master, *(cells for *_, cells in written)]
    longest = max(sum(map(len, cells)) + 2 * len(cells) for cells in contents) + _DATABASE_HEADER + 8
    size = next((size for size in _PAGE_BYTES if size >= longest), _PAGE_BYTES[-1])
    pages = [_page(cells, size, 0 if number else _DATABASE_HEADER) for number, cells in enumerate(contents)]
    head = struct.pack(
        ">16sH6B4I", b"SQLite format 3", size % 65_535, 1, 1, 0, 64, 32, 32, 1, len(pages), 0, 0
    )
    head += struct.pack(">8I20xII", 1, 4, 0, 0, 1, 0, 0, 0, 1, 3_040_000)
    return head + b"".join(pages)


_DATABASE_HEADER: Final = 100
_LEAF: Final = 13
_PAGE_BYTES: Final = tuple(2**bits for bits in range(9, 17))
_SHORT: Final = reprlib.Repr()
_SHORT.maxlevel = 2


def _table(name: str, rows: list[Any]) -> tuple[str, str, list[bytes]]:
    """Return a table's name, its definition without types, as any value is kept as it is, and its rows."""
    kept = [row for row in rows[:_MOST_VALUES] if isinstance(row, dict)]
    names = list(dict.fromkeys(str(name) for row in kept for name in row)) or ["id"]
    quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    cells = [_cell_of(number, map(row.get, names)) for number, row in enumerate(kept, 1)]
    return name, f"CREATE TABLE {name} ({quoted})", cells


def _page(cells: list[bytes], size: int, before: int) -> bytes:
    """Return a page of these rows, as many as it can hold. before: the size of what precedes it."""
    end, places, content = size, list[int](), list[bytes]()
    for cell in cells:
        if end - len(cell) < before + 8 + 2 * (len(places) + 1) or len(cell) > size - 35:
            break
        end -= len(cell)
        places.append(end)
        content.append(cell)
    head = struct.pack(f">BHHHB{len(places)}H", _LEAF, 0, len(places), end % 2**16, 0, *places)
    return head + bytes(end - before - len(head)) + b"".join(reversed(content))


def _cell_of(number: int, values: Iterable[Any]) -> bytes:
    """Return a row with this number as SQLite writes it."""
    kinds, content = bytearray(), list[bytes]()
    for value in values:
        kind, written = _stored(value)
        kinds += _big_varint(kind)
        content.append(written)
    record = _big_varint(len(kinds) + (1 if len(kinds) < 127 else 2)) + kinds + b"".join(content)
    return _big_varint(len(record)) + _big_varint(number) + record


def _stored(value: Any) -> tuple[int, bytes]:
    """Return a value's type and its bytes: SQLite has whole numbers of 64 bits, floats, texts and nothing."""
    if value is None:
        return 0, b""
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return 6, value.to_bytes(8, "big", signed=True)
    if isinstance(value, int | float):
        return 7, struct.pack(">d", value)
    text = value if isinstance(value, str) else _SHORT.repr(value)
    written = text.encode("utf-8", "surrogatepass")
    return 12 + text.isprintable() + 2 * len(written), written


def _big_varint(value: int) -> bytes:
    """Write a number of up to 21 bits as SQLite does: its highest bits come first."""
    if value < 1 << 7:
        return bytes((value,))
    if value < 1 << 14:
        return bytes((value >> 7 | 128, value & 127))
    return bytes((value >> 14 | 128, value >> 7 & 127 | 128, value & 127))


def as_log(document: Any, draw: random.Random) -> bytes:
    """Return a log of torch.compile. document: kind, id, what it says and its payload, of each entry."""
    entries = _unshared(document) if isinstance(document, list) else ()
    return b"\n".join([*(line for entry in entries for line in _logged(entry, draw)), b""])


def _logged(entry: Any, draw: random.Random) -> Iterator[bytes]:
    """Yield the lines of an entry."""
    whole = isinstance(entry, list) and len(entry) == 4
    kind, id, said, payload = entry if whole else ("", "", entry, None)
    function, _, before = str(id).partition("/")
    fields = {str(kind): said, "frame_id": _whole(function), "frame_compile_id": _whole(before)}
    is_text = not isinstance(payload, list | dict)
    text = str(payload).encode("utf-8", "replace") if is_text else as_json(payload, draw)
    if payload is not None:
        known = draw.random() < 0.95
        fields["has_payload"] = hashlib.md5(text, usedforsecurity=False).hexdigest() if known else payload
    yield b"V1126 10:02:47.287000 4242 torch/_dynamo/utils.py:2350] " + as_json(fields, draw)
    if payload is not None:
        yield from (b"\t" + line for line in text.split(b"\n"))


def _whole(text: str) -> Any:
    return int(text) if text.isascii() and text.isdecimal() else text


Writer = Callable[[Any, random.Random], bytes]
