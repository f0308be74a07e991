"""Structured mutation: change a document in a few places, so that it stays one and reaches deep code."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.fuzz.odd_values import NUMBERS, OTHERS, TEXTS, Again, Deep, shared

MOST_CHANGES = 4

Slot = tuple[Any, Any]
"""A container and the key or index of one value in it."""

_CONTAINERS = (dict, list)

Change = Callable[[random.Random, list[Slot]], None]


def mutated(content: bytes, seed: int) -> bytes:
    """Return the JSON with some values changed, moved, repeated or removed; other bytes as they are."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return content
    change(document, random.Random(seed), IN_JSON)
    return json.dumps(document).encode("utf-8", "surrogatepass")


def change(document: Any, draw: random.Random, changes: Sequence[Change], times: int = 1) -> None:
    """Make a few of these changes, so many times."""
    slots = _slots(document)
    for _ in range(times * draw.randint(1, MOST_CHANGES)):
        if not slots:
            break
        chosen = draw.choice(changes)
        chosen(draw, slots)
        if chosen is _remove:  # after the others, each place is still there
            slots = _slots(document)


def put(value: Any, document: Any, draw: random.Random) -> None:
    """Write a value into some place."""
    container, key = draw.choice(_slots(document))
    container[key] = value


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Change some bytes, or cut the content off."""
    changed = bytearray(content)
    if content and draw.random() < 0.5:
        return bytes(changed[: draw.randrange(len(changed))])
    for _ in range(draw.randint(1, MOST_CHANGES) if content else 0):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def _slots(document: Any) -> list[Slot]:
    """Every place of a value, without recursion; those of what is shared once."""
    found: list[Slot] = []
    containers = [document] if document.__class__ in _CONTAINERS else []
    seen = set(map(id, containers))
    for container in containers:  # which grows
        for key, value in container.items() if container.__class__ is dict else enumerate(container):
            found.append((container, key))
            if value.__class__ in _CONTAINERS and id(value) not in seen:
                seen.add(id(value))
                containers.append(value)
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
        by = draw.choice([-1, 1, -1_000, 1_000]) * draw.choice([0.001, 1, 7, 1e6])
        container[key] += int(by) if isinstance(container[key], int) and draw.random() < 0.5 else by


def _border(draw: random.Random, slots: list[Slot]) -> None:
    """Replace a number by one at a border that fits 64 bits with a sign, as typed columns hold it."""
    numbers = [(c, k) for c, k in slots if type(c[k]) is int]
    if numbers:
        container, key = draw.choice(numbers)
        container[key] = draw.choice(_WHOLE)


def _reword(draw: random.Random, slots: list[Slot]) -> None:
    texts = [(c, k) for c, k in slots if isinstance(c[k], str)]
    if texts:
        container, key = draw.choice(texts)
        container[key] = draw.choice(TEXTS)


def _copy(draw: random.Random, slots: list[Slot]) -> None:
    """Write a value over another one, of the same key if there is one: names, threads and ids coincide."""
    container, key = draw.choice(slots)
    same = [(c, k) for c, k in slots if k == key and type(c) is type(container)]
    source, from_key = draw.choice(same)
    container[key] = copy.deepcopy(source[from_key])


def _share(draw: random.Random, slots: list[Slot]) -> None:
    """Write the very same object into other places: what looks at each sees it as often."""
    source, from_key = draw.choice([(c, k) for c, k in slots if isinstance(c[k], _CONTAINERS)] or slots)
    lists = [c for c, _ in slots if isinstance(c, list) and c is not source[from_key]]
    if lists and not _contains(source[from_key], chosen := draw.choice(lists)):
        chosen.extend([source[from_key]] * draw.choice((1, 2, 200)))


def _contains(value: Any, sought: Any) -> bool:
    """Return whether a value is in another one: then it must not hold that."""
    return value is sought or any(c is sought or c[k] is sought for c, k in _slots(value))


def _remove(draw: random.Random, slots: list[Slot]) -> None:
    container, key = draw.choice(slots)
    del container[key]


def _repeat(draw: random.Random, slots: list[Slot]) -> None:
    lists = [(c, k) for c, k in slots if isinstance(c, list)]
    if lists:
        container, key = draw.choice(lists)
        container.insert(draw.randint(0, len(container)), copy.deepcopy(container[key]))


def _twice(draw: random.Random, slots: list[Slot]) -> None:
    """Write a field twice, with another value."""
    fields = [(c, k) for c, k in slots if isinstance(c, dict)]
    if fields:
        container, key = draw.choice(fields)
        container[Again(key)] = copy.deepcopy(draw.choice((container[key], draw.choice(NUMBERS))))


def _wrap(draw: random.Random, slots: list[Slot]) -> None:
    """Nest a value, or write what grows when it is looked at."""
    container, key = draw.choice(slots)
    container[key] = draw.choice(
        (lambda: [container[key]], lambda: {"": container[key]}, lambda: shared(draw.choice((3, 8, 40))))
    )()


def _deepen(draw: random.Random, slots: list[Slot]) -> None:
    """Nest nothing, deep: seldom so deep that it costs time."""
    container, key = draw.choice(slots)
    container[key] = Deep(draw.choice((10, 200, 300, 1_200)) if draw.random() < 0.999 else 100_000)


IN_JSON: tuple[Change, ...] = (_replace, _shift, _shift, _copy, _remove, _repeat)
"""Changes after which Python's own writers can write the document, as numbers of any size."""

_WHOLE = tuple(number for number in NUMBERS if isinstance(number, int) and -(2**63) <= number < 2**63)

TYPED: tuple[Change, ...] = (*(_border,) * 4, _reword, _shift, _copy, _remove, _repeat, _share)
"""Changes after which values have mostly the types that they had: a reader of typed columns reads on."""

IN_ROWS: tuple[Change, ...] = (*(_border,) * 4, _reword, _copy)
"""Changes for which no file is refused as a whole, so that it can have many of them."""

EVERY: tuple[Change, ...] = (*IN_JSON, *TYPED, _replace, _twice, _wrap, _deepen)
