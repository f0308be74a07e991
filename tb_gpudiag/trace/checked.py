"""Values of data that somebody else wrote, such as JSON or a plain pickle: checked where they are read.

Nothing is formatted, compared or counted before its type and its size are known: a number may have a million
digits, a list may hold itself a million times, and JSON has Infinity. Only the standard library is imported.
"""

from __future__ import annotations

import math
from typing import Any, Final

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
