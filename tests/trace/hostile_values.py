"""Values that a file may hold where a reader expects a name, a number or a list."""

from __future__ import annotations

from typing import Any


def shared(levels: int) -> list[Any]:
    """A list that is short in a pickle, and has 2 ** levels texts for whoever walks it."""
    found: list[Any] = ["text"]
    for _ in range(levels):
        found = [found, found]
    return found


def nested(levels: int) -> list[Any]:
    """A list in a list in a list."""
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


def hostile_values() -> dict[str, Any]:
    """Values by what is wrong with them. None can be written by a recorder."""
    return {
        "infinite": float("inf"),
        "not a number": float("nan"),
        "of 71 bits": 2**70,
        "of 57 digits": 10**56,
        "negative": -(2**63) - 1,
        "a fraction": 0.5,
        "nothing": None,
        "true": True,
        "a long text": "x" * 100_000,
        "a number as text": "1",
        "empty": [],
        "named": {"a": 1},
        "a list of large numbers": [[10**19] * 400],
        "shared": shared(60),
        "in a list": [shared(60)],
        "deep": nested(100),
    }
