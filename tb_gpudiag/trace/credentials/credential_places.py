"""Find the places in a text where a credential may be: fast, and not sure.

A place is where a word starts that announces a credential, in a name that a value may follow, or where a
value starts as only credentials do. Finding them takes a time in proportion to the text, whatever it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.vocabulary.credential_forms import IN_VALUES
from tb_gpudiag.vocabulary.credential_text import (
    ANYWHERE,
    FOLLOWED,
    IN_NAMES,
    MAYBE,
    NAME_CHARACTERS,
    VALUE_START,
)

try:
    from tb_gpudiag.trace.credentials import _find
except ImportError:  # there was no C compiler when gpudiag was installed
    _find = None  # type: ignore[assignment]

_FINDER: Final[_find.Finder | None] = None if _find is None else _find.Finder(IN_NAMES, IN_VALUES, ANYWHERE)

# The plain way: RE2 passes over text without a place, and Python goes through this much after one.
_WORTH_BYTES: Final = 16 << 10
# RE2 sees this much at a time, because it may look far ahead, and this much of what follows.
_WINDOW_BYTES: Final = 256 << 10
_AHEAD_BYTES: Final = 1 << 10
# Below this, Python's expressions are done sooner than RE2 is set up.
_SHORT_BYTES: Final = 2 << 10
_LONGEST_BEFORE: Final = 64
_NAME_START: Final = re.compile(b"(?=" + b"|".join(map(re.escape, IN_NAMES)) + b")")


def places(text: bytes, at: int, stop: int, most: int) -> list[int]:
    """Return the places from `at` to before `stop`, in order and at most so many of them."""
    if _FINDER is not None:
        return _FINDER.places(text, at, stop, most)
    return list(islice(plain_places(text, at, min(stop, len(text))), most))


def run_before(text: bytes, at: int) -> int:
    """Return where the run of a name's characters starts that ends at `at`; `at` itself if it is too long."""
    before = text[max(0, at - _LONGEST_BEFORE - 1) : at]
    run = len(before) - len(before.rstrip(NAME_CHARACTERS))
    return at - run if run <= _LONGEST_BEFORE else at


def plain_places(text: bytes, at: int, stop: int) -> Iterator[int]:
    """Yield the places from `at` to before `stop`, as Python's expressions find them."""
    while at < stop:
        if stop - at >= _SHORT_BYTES:
            at = _maybe(text, at, stop)
        end = min(at + _WORTH_BYTES, stop)
        part = text[at : end + _AHEAD_BYTES]
        names = (
            at + match.start()
            for match in _NAME_START.finditer(part.lower())
            if at + match.start() < end and _is_followed(text, at + match.start())
        )
        found = VALUE_START.finditer(text, at, end + _AHEAD_BYTES)
        values = (match.start() for match in found if match.start() < end)
        last = -1
        for place in merge(names, values):
            if place != last:
                yield place
            last = place
        at = end


def _maybe(text: bytes, at: int, stop: int) -> int:
    """Return a place with no other from `at` to before it; `stop` if there is none."""
    while at < stop:
        end = min(at + _WINDOW_BYTES, stop)
        ends = pa.py_buffer(np.array([at, min(end + _AHEAD_BYTES, len(text))], np.int64))
        column = pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, pa.py_buffer(text)])
        found: int = pc.find_substring_regex(column, MAYBE)[0].as_py()
        if 0 <= found < end - at:
            return at + found
        at = end
    return stop


def _is_followed(text: bytes, place: int) -> bool:
    match = FOLLOWED.match(text, place)
    if match is None or match["bare"] is None:
        return match is not None
    begin = run_before(text, place)
    return text[begin - 1 : begin] == b"<" if match["bare"] == b">" else text[begin : begin + 1] == b"-"
