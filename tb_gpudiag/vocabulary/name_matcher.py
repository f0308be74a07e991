"""Match many names with a pattern, in time that is linear in their length.

Names in traces are hostile text, and Python's `re` takes up to the square of the length. RE2, with which
Arrow matches, never does, and is several times as fast for many names. It has no lookarounds: the patterns of
this package have none, and say with a second pattern what must not be there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.vocabulary.patterns import LONGEST_MATCHED

# To set up RE2 for a pattern takes as long as to look through a thousand names. Others ask about the same few
# names: a second fact, the next rank of a job, the next trace.
_FEW: Final = 100
_SHORT: Final = 200
_MOST_KNOWN: Final = 500
_MOST_PATTERNS: Final = 500

_FLAGS = {re.IGNORECASE: "i", re.DOTALL: "s"}


class NameMatcher:
    """Matches names with patterns, and remembers what `matches` found. Of longer names, the first characters
    count."""

    def __init__(self, names: Sequence[str], longest: int = LONGEST_MATCHED) -> None:
        self._names = names
        self._longest = longest
        self._of_pattern: dict[re.Pattern[str], Bool] = {}

    @cached_property
    def _texts(self) -> pa.Array:
        # JSON may have halves of surrogate pairs, which UTF-8 does not.
        texts = [name[: self._longest].encode("utf-8", "replace") for name in self._names]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        return pa.LargeStringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))

    def matches(self, pattern: re.Pattern[str]) -> Bool:
        """Mask of the names that match as a whole, shape (names,)."""
        found = self._of_pattern.get(pattern)
        if found is None:
            found = self._of_pattern[pattern] = self.matches_some(pattern, np.arange(len(self._names)))
        return found

    def matches_some(self, pattern: re.Pattern[str], some: Int64) -> Bool:
        """Mask of these names (indices) that match as a whole, shape of `some`. No others are looked at."""
        return self._test(rf"{_flags(pattern)}\A(?:{pattern.pattern})\z", some)

    def contains(self, pattern: re.Pattern[str], some: Int64) -> Bool:
        """Mask of these names (indices) in which the pattern is found, shape of `some`."""
        return self._test(f"{_flags(pattern)}(?:{pattern.pattern})", some)

    def with_one(self, pattern: re.Pattern[str], but_not: re.Pattern[str] | None, some: Int64) -> Int64:
        """Return those of these names (indices) in which the one is found, and the other is not."""
        some = some[self.contains(pattern, some)]
        return some if but_not is None or not len(some) else some[~self.contains(but_not, some)]

    def _test(self, pattern: str, some: Int64) -> Bool:
        if not len(some):
            return np.zeros(0, np.bool_)
        names, known = self._few(some), _known(pattern)
        if names and all(name in known for name in names):
            return np.array([known[name] for name in names], np.bool_)
        chosen = self._texts if len(some) == len(self._names) else self._texts.take(_indices(some))
        found: Bool = np.array(pc.match_substring_regex(chosen, pattern), np.bool_)
        if len(known) + len(names) <= _MOST_KNOWN:
            known.update(zip(names, found.tolist(), strict=False))
        return found

    def _few(self, some: Int64) -> list[str]:
        """Return these names, if what was found in them is worth keeping."""
        names = [self._names[i] for i in some.tolist()] if len(some) <= _FEW else []
        return names if all(len(name) <= min(_SHORT, self._longest) for name in names) else []


@lru_cache(_MOST_PATTERNS)
def _known(_pattern: str) -> dict[str, bool]:
    """Whether names were matched by the pattern, in any trace."""
    return {}


def _indices(rows: Int64) -> pa.Array:
    """Return rows for `take`, without the look for pandas of `pa.array`."""
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows.astype(np.int64))])


def _flags(pattern: re.Pattern[str]) -> str:
    letters = "".join(letter for flag, letter in _FLAGS.items() if pattern.flags & flag)
    return f"(?{letters})" if letters else ""
