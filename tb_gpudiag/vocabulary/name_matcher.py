"""Match many names with a pattern, in time that is linear in their length.

Names in traces are hostile text, and Python's `re` takes up to the square of the length. RE2, with which
Arrow matches, never does, and is several times as fast for many names. It has no lookarounds: the patterns of
this package have none, and say with a second pattern what must not be there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.vocabulary.patterns import LONGEST_MATCHED

# RE2 is set up for each pattern: for so few characters, `re` has finished before, whatever they are.
_FEW_CHARACTERS = 8_192
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
        cut = (name[: self._longest] for name in self._names)
        # JSON may have halves of surrogate pairs, which UTF-8 does not.
        texts = [name if name.isascii() else name.encode("utf-8", "replace").decode() for name in cut]
        return pa.array(texts, pa.large_string())

    @cached_property
    def _lengths(self) -> Int64:
        return np.fromiter(
            (min(len(name), self._longest) for name in self._names), np.int64, len(self._names)
        )

    def matches(self, pattern: re.Pattern[str]) -> Bool:
        """Mask of the names that match as a whole, shape (names,)."""
        found = self._of_pattern.get(pattern)
        if found is None:
            found = self._of_pattern[pattern] = self.matches_some(pattern, np.arange(len(self._names)))
        return found

    def matches_some(self, pattern: re.Pattern[str], some: Int64) -> Bool:
        """Mask of these names (indices) that match as a whole, shape of `some`. No others are looked at."""
        return self._test(pattern.fullmatch, lambda: rf"{_flags(pattern)}\A(?:{pattern.pattern})\z", some)

    def contains(self, pattern: re.Pattern[str], some: Int64) -> Bool:
        """Mask of these names (indices) in which the pattern is found, shape of `some`."""
        return self._test(pattern.search, lambda: f"{_flags(pattern)}(?:{pattern.pattern})", some)

    def with_one(self, pattern: re.Pattern[str], but_not: re.Pattern[str] | None, some: Int64) -> Int64:
        """Return those of these names (indices) in which the one is found, and the other is not."""
        some = some[self.contains(pattern, some)]
        return some if but_not is None or not len(some) else some[~self.contains(but_not, some)]

    def _test(self, test: Callable[[str, int, int], object], for_re2: Callable[[], str], some: Int64) -> Bool:
        if int(self._lengths[some].sum()) > _FEW_CHARACTERS:
            chosen = self._texts if len(some) == len(self._names) else self._texts.take(pa.array(some))
            return np.array(pc.match_substring_regex(chosen, for_re2()), np.bool_)
        found = (test(self._names[i], 0, self._longest) is not None for i in some.tolist())
        return np.fromiter(found, np.bool_, len(some))


def _flags(pattern: re.Pattern[str]) -> str:
    letters = "".join(letter for flag, letter in _FLAGS.items() if pattern.flags & flag)
    return f"(?{letters})" if letters else ""
