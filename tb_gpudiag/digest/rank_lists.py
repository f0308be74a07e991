"""Lists of ranks as short text. In a job of ten thousand ranks, each digest lists all of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np

# A job of ten thousand ranks with a hundred groups that all are in.
MOST_RANKS: Final = 1_000_000
_HIGHEST_RANK: Final = 2**31 - 1


def to_text(ranks: Sequence[int]) -> str:
    """Return ascending ranks as runs: "0-7 16" is 0 to 7, and 16; "0-24:8" is 0, 8, 16 and 24."""
    numbers = np.asarray(ranks, np.int64)
    gaps = np.diff(numbers)
    # A run ends where the gap before a rank differs from the one after it.
    borders = [0, *(np.flatnonzero(np.diff(gaps)) + 2).tolist(), len(numbers)]
    said = []
    for begin, end in pairwise(borders if len(numbers) else []):
        first, last = int(numbers[begin]), int(numbers[end - 1])
        step = int(gaps[begin]) if end - begin > 1 else 1
        said.append(str(first) if first == last else f"{first}-{last}" + (f":{step}" if step != 1 else ""))
    return " ".join(said)


# The ranks of a job list the same groups: they share one tuple.
@lru_cache(maxsize=4096)
def from_text(text: str) -> tuple[int, ...]:
    """Return the ranks that `to_text` wrote, ascending. Raises ValueError: no list of ranks is written so."""
    found: list[int] = []
    for run in text.split():
        span, _, step = run.partition(":")
        first, _, last = span.partition("-")
        ranks = range(int(first), int(last or first) + 1, int(step or 1))
        if not 0 < len(ranks) <= MOST_RANKS - len(found) or ranks[-1] > _HIGHEST_RANK:
            raise ValueError("ranks")
        found += ranks
    if any(after <= before for before, after in pairwise([-1, *found])):
        raise ValueError("ranks")
    return tuple(found)
