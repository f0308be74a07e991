"""Values that writers get wrong, or that attackers write, and stand-ins for what Python cannot hold."""

from __future__ import annotations

import math
from typing import Any, Final

MARKUP: Final = "</script><odd onload=x>&\"'"
"""Views may show it as text, never as a tag."""

# Borders of integers and floats, times before and after any recording, and forms that writers have used.
NUMBERS: Final = (
    *(0, -1, 1, 255, 256, 2**24, 2**31 - 1, 2**31, 2**32, 2**53, 2**53 + 1, 2**62),
    *(2**63 - 1, 2**63, 2**63 + 1, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 2**70, -(2**70), 10**30, 10**56),
    *(0.5, -0.0, 1e-9, 5e-324, 1e18, 1e19, 1e308, -1e308, math.inf, -math.inf, math.nan),
)
TEXTS: Final = (
    *("", "0", "-1", "nan", "Infinity", "1e400", "18446744073709551616", "stream 7", "7 [1, 2]", "0x7f"),
    *("\x1b[31m", "\x00", "\n", "\t", "\u2028", "\u202e", "\ud83d", "\udc00", "😀", "é" * 300, "a" * 2_000),
    *("<b>", MARKUP, "[x](javascript:1)", "`|`", "../../etc/passwd", "file:///etc/passwd", "${HOME}", "%s%n"),
)
OTHERS: Final[tuple[Any, ...]] = (None, True, False, [], {}, [[]], {"": {}}, [None], [0] * 300, ["a"] * 300)


class Again(str):
    """The name of a field that its object has twice. Two of them are never equal, so a dict holds both."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Deep(str):
    """A value nested so deeply. Python's own writers would run out of stack, so ours write it."""

    depth: int

    def __new__(cls, depth: int) -> Deep:
        made = super().__new__(cls, f"deep-{depth}")
        made.depth = depth
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Deep, (self.depth,)


class Single(float):
    """A number that Protocol Buffers write with 32 bits."""


def shared(levels: int) -> Any:
    """Return a list that has one object twice, which does so, too: 2**levels elements to who looks."""
    made: list[Any] = [7]
    for _ in range(levels):
        made = [made, made]
    return made
