"""Structured mutation: change a JSON document in a few places, so that it stays one and reaches deep code."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

from tests.fuzz.odd_events import odd_array, odd_text
from tests.fuzz.tiny import tiny_recording

TINY_SHARE = 0.6
"""So many of the traces are tiny recordings: these have found more than mutations of larger ones."""

MADE_SHARE = 0.9
"""So many of the inputs of the compiled modules alone are made anew."""

MOST_CHANGES = 4

# Borders of integers and floats, times before and after any recording, and forms that writers have used.
NUMBERS = (0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**30, 0.5, -0.0, 1e-9, 1e18, 1e308)
TEXTS = (
    "",
    "0",
    "-1",
    "nan",
    "stream 7",
    "\x1b[31m",
    "\ud83d",
    "a" * 2_000,
    "<b>",
    "../../etc/passwd",
    "7 [1, 2]",
)
OTHERS: tuple[Any, ...] = (None, True, [], {}, [[]], {"": {}})

Slot = tuple[Any, Any]
"""A container and the key or index of one value in it."""


def made(target: str, content: bytes, seed: int) -> bytes:
    """Return an input for a target: a file of its corpus, changed, or for traces a tiny recording."""
    draw = random.Random(seed)
    if target == "trace" and draw.random() < TINY_SHARE:
        content = tiny_recording(draw)
        return mutated(content, seed) if draw.random() < 0.1 else content
    if target in _MAKERS and draw.random() < MADE_SHARE:
        return _MAKERS[target](draw)
    changed = mutated(content, seed)
    return changed if changed != content else _with_other_bytes(content, draw)


def _with_other_bytes(content: bytes, draw: random.Random) -> bytes:
    """Change bytes of what is no JSON, or cut it off."""
    changed = bytearray(content)
    for _ in range(draw.randint(1, MOST_CHANGES) if content else 0):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed[: draw.randrange(len(changed))] if content and draw.random() < 0.2 else changed)


def mutated(content: bytes, seed: int) -> bytes:
    """Return the document with some values changed, moved, repeated or removed; other bytes as they are."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return content
    draw = random.Random(seed)
    for _ in range(draw.randint(1, MOST_CHANGES)):
        slots = _slots(document)
        if not slots:
            break
        draw.choice(_CHANGES)(draw, slots)
    return json.dumps(document).encode("utf-8", "surrogatepass")


def _slots(document: Any) -> list[Slot]:
    """Every place of a value, without recursion."""
    found: list[Slot] = []
    left = [document]
    while left:
        value = left.pop()
        keys = (
            list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        )
        for key in keys:
            found.append((value, key))
            left.append(value[key])
    return found


def _replace(draw: random.Random, slots: list[Slot]) -> None:
    container, key = draw.choice(slots)
    chosen = draw.choice([draw.choice(NUMBERS), draw.choice(TEXTS), draw.choice(OTHERS)])
    container[key] = copy.deepcopy(chosen)  # a later change must not change what is chosen from


def _shift(draw: random.Random, slots: list[Slot]) -> None:
    """Change a number by a little or by much: times begin to cross and to repeat."""
    numbers = [(c, k) for c, k in slots if isinstance(c[k], int | float) and not isinstance(c[k], bool)]
    if numbers:
        container, key = draw.choice(numbers)
        container[key] += draw.choice([-1, 1, -1_000, 1_000]) * draw.choice([0.001, 1, 7, 1e6])


def _copy(draw: random.Random, slots: list[Slot]) -> None:
    """Write a value over another one, of the same key if there is one: names, threads and ids coincide."""
    container, key = draw.choice(slots)
    same = [(c, k) for c, k in slots if k == key and type(c) is type(container)]
    source, from_key = draw.choice(same)
    container[key] = json.loads(json.dumps(source[from_key]))


def _remove(draw: random.Random, slots: list[Slot]) -> None:
    container, key = draw.choice(slots)
    del container[key]


def _repeat(draw: random.Random, slots: list[Slot]) -> None:
    lists = [(c, k) for c, k in slots if isinstance(c, list)]
    if lists:
        container, key = draw.choice(lists)
        container.insert(draw.randint(0, len(container)), json.loads(json.dumps(container[key])))


_CHANGES: tuple[Callable[[random.Random, list[Slot]], None], ...] = (
    _replace,
    _shift,
    _shift,
    _copy,
    _remove,
    _repeat,
)

_MAKERS: dict[str, Callable[[random.Random], bytes]] = {"scan": odd_array, "find": odd_text}
"""What makes the inputs of a target."""
