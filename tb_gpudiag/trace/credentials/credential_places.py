"""Find the places in a text where a credential may be: fast, and not sure."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.vocabulary.credential_text import IN_NAMES, IN_VALUES, MAYBE

try:
    from tb_gpudiag.trace.credentials import _find
except ImportError:  # there was no C compiler when gpudiag was installed
    _find = None  # type: ignore[assignment]

_FINDER: Final = None if _find is None else _find.Finder(IN_NAMES, IN_VALUES)

WORTH_BYTES: Final = 64 << 10 if _FINDER is None else 1 << 10
"""So much text after a place is searched with slow expressions as soon as the next place is found."""

# Below this, Python's expression finds nothing sooner than RE2 is set up.
_SHORT_BYTES: Final = 2 << 10
_MAYBE: Final = re.compile(MAYBE.encode())
# MAYBE may start this much before one of the texts, at the quote or hyphens before a name.
_BACK: Final = 128
_MOST_TRIES: Final = 64
_START_OF_NAME: Final = re.compile(rb'(?:"[A-Z0-9_]*|--[A-Za-z0-9_.\-]*)\Z')


def first_place(text: bytes, at: int) -> int:
    """Return the first place from `at` where a credential may be, or a little before it; -1 if there is
    none."""
    if _FINDER is not None:
        found, at = _compiled_first(_FINDER, text, at)
        if found is not None:
            return found
    if len(text) - at < _SHORT_BYTES:
        match = _MAYBE.search(text, at)
        return -1 if match is None else match.start()
    ends = pa.py_buffer(np.array([at, len(text)], np.int64))
    column = pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, pa.py_buffer(text)])
    place: int = pc.find_substring_regex(column, MAYBE)[0].as_py()
    return place if place < 0 else at + place


def _compiled_first(finder: _find.Finder, text: bytes, at: int) -> tuple[int | None, int]:
    """Have the finder look for the texts that every match of MAYBE contains: that takes a sixth of RE2's
    time. Return the place, and where to go on if it is None, in a text with many such texts."""
    begin = at
    for _ in range(_MOST_TRIES):
        place = finder.first(text, at)
        if place < 0:
            return -1, at
        before = _START_OF_NAME.search(text, max(begin, place - _BACK), place)
        if before is not None and _MAYBE.match(text, before.start()):
            return before.start(), at
        if _MAYBE.match(text, place):
            return place, at
        at = place + 1
    return None, max(begin, at - _BACK)
