"""Read the plain data of a small pickle without running it, and check its values where they are read.

A pickle is a program that builds objects and can run anything. `snapshot_pickle.py` reads large ones with
Python's unpickler after a check. A dump of the flight recorder is small, and has tuples of text, which that
check refuses. So this is an interpreter of the few instructions that torch writes for plain data. It has no
classes and no functions, makes a list of each tuple, and takes nothing but text as a key.

Nothing is formatted, compared or counted before its type and its size are known: a number may have a million
digits, a list may hold itself a million times, and JSON has Infinity. Only the standard library is imported.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, Final

from tb_gpudiag.errors import NotATrace, TooLarge, Unsafe
from tb_gpudiag.trace.memory.snapshot_pickle import BUILDS_OBJECTS

_MARK: Final = object()
_STOP: Final = ord(".")
_SHORT, _INT, _SIZE, _DOUBLE = (struct.Struct(layout) for layout in ("<H", "<i", "<I", ">d"))
# A dump of 2,000 operations has some 500,000. Each may make a list, which takes 60 times its byte in memory.
MOST_INSTRUCTIONS: Final = 50_000_000


class _Reader:
    """Position in the pickle, the stack and the memo."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def take(self, size: int) -> bytes:
        taken = self.data[self.at : self.at + size]
        if len(taken) < size:
            raise ValueError("cut off")
        self.at += size
        return taken

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self, layout: struct.Struct) -> Any:
        self.at += layout.size
        return layout.unpack_from(self.data, self.at - layout.size)[0]

    def text(self, size: int) -> str:
        return self.take(size).decode("utf-8", "replace")

    def since_mark(self) -> list[Any]:
        start = len(self.stack) - 1
        while self.stack[start] is not _MARK:
            start -= 1
        taken = self.stack[start + 1 :]
        del self.stack[start:]
        return taken

    def last(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise ValueError("empty stack")
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(target) is not dict or type(key) is not str:
                raise ValueError("key")
            target[key] = value

    def append(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise ValueError("no list")
        self.stack[-1].extend(items)


_PUSHES: Final[dict[int, Callable[[_Reader], Any]]] = {
    ord("}"): lambda _: {},
    ord("]"): lambda _: [],
    ord(")"): lambda _: [],
    ord("("): lambda _: _MARK,
    ord("N"): lambda _: None,
    0x88: lambda _: True,
    0x89: lambda _: False,
    ord("K"): _Reader.byte,
    ord("M"): lambda reader: reader.number(_SHORT),
    ord("J"): lambda reader: reader.number(_INT),
    0x8A: lambda reader: int.from_bytes(reader.take(reader.byte()), "little", signed=True),
    ord("G"): lambda reader: reader.number(_DOUBLE),
    ord("X"): lambda reader: reader.text(reader.number(_SIZE)),
    0x8C: lambda reader: reader.text(reader.byte()),
    ord("h"): lambda reader: reader.memo[reader.byte()],
    ord("j"): lambda reader: reader.memo[reader.number(_SIZE)],
    0x85: lambda reader: reader.last(1),
    0x86: lambda reader: reader.last(2),
    0x87: lambda reader: reader.last(3),
    ord("t"): _Reader.since_mark,
}
_CHANGES: Final[dict[int, Callable[[_Reader], object]]] = {
    0x80: lambda reader: reader.take(1),  # protocol
    0x95: lambda reader: reader.take(8),  # frame
    ord("q"): lambda reader: reader.memo.__setitem__(reader.byte(), reader.stack[-1]),
    ord("r"): lambda reader: reader.memo.__setitem__(reader.number(_SIZE), reader.stack[-1]),
    0x94: lambda reader: reader.memo.__setitem__(len(reader.memo), reader.stack[-1]),
    ord("s"): lambda reader: reader.set_items(reader.last(2)),
    ord("u"): lambda reader: reader.set_items(reader.since_mark()),
    ord("a"): lambda reader: reader.append(reader.last(1)),
    ord("e"): lambda reader: reader.append(reader.since_mark()),
}


def plain_data(data: bytes, path: str) -> Any:
    """Return the numbers, text, lists and dicts of a pickle. Tuples become lists.

    Raises Unsafe if it would build anything else, NotATrace if it is damaged, and TooLarge. Parts are shared
    as in the pickle, so a walk over all of them may never end.
    """
    reader = _Reader(data)
    try:
        for _ in range(MOST_INSTRUCTIONS):
            instruction = reader.byte()
            if instruction == _STOP:
                return reader.stack[-1]
            if (push := _PUSHES.get(instruction)) is not None:
                reader.stack.append(push(reader))
            elif (change := _CHANGES.get(instruction)) is not None:
                change(reader)
            elif instruction in BUILDS_OBJECTS:
                raise Unsafe(
                    "the pickle builds more than plain data", where=path, remedy="it was not read: delete it"
                )
            else:
                raise ValueError("instruction")
    except (ValueError, LookupError, struct.error) as error:
        raise NotATrace("the pickle is damaged", where=path, remedy="dump it again") from error
    raise TooLarge("the pickle has more values than any dump", where=path, remedy="record fewer operations")


MOST_ID: Final = 2**64 - 1
MOST_COUNT: Final = 2**32 - 1
"""What a report counts with 32 bits."""

MOST_LINE: Final = 2**31 - 1
LATEST_NS: Final = 2**62
MOST_ELEMENTS: Final = 2**60
"""Of a tensor, or of all tensors of a call."""

LONGEST_TEXT: Final = 1_000
"""What is kept of a name, a path or another text that a sentence quotes."""


class WrongField(ValueError):
    """A field is not what it has to be. str() names it, and says what is wrong; it quotes no value."""


def text(value: object, field: str, most: int = LONGEST_TEXT) -> str:
    """Return the beginning of a text. Raises WrongField."""
    if type(value) is not str:
        raise WrongField(f"{field} is no text")
    return value[:most]


def whole(value: object, field: str, least: int = 0, most: int = MOST_ID) -> int:
    """Return a whole number within bounds. Raises WrongField."""
    if type(value) is not int or not least <= value <= most:
        raise WrongField(f"{field} is no whole number from {least} to {most}")
    return value


def listed(value: object, field: str, most: int) -> list[Any]:
    """Return a list. Raises WrongField: it is none, or has more entries than `most`."""
    if type(value) is not list:
        raise WrongField(f"{field} is no list")
    if len(value) > most:
        raise WrongField(f"{field} has more than {most:,} entries")
    return value


def record(value: object, field: str) -> dict[str, Any]:
    """Return the named values of a record. Raises WrongField."""
    if type(value) is not dict:
        raise WrongField(f"{field} has no named values")
    return value


def elements(size: object, field: str) -> int:
    """Return how many elements a tensor of this size has. Raises WrongField."""
    found = math.prod(whole(n, field, 0, MOST_ELEMENTS) for n in listed(size, field, MOST_DIMENSIONS))
    return whole(found, field, 0, MOST_ELEMENTS)


MOST_DIMENSIONS: Final = 64
"""Of a tensor of torch."""
