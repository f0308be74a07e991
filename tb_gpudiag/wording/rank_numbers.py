"""Numbers of ranks in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

# Ranks, or runs of consecutive ranks, that a sentence lists.
_RUNS_SHOWN: Final = 6


def numbers_text(ranks: Sequence[int]) -> str:
    """`3`, `1 and 5`, `8–15`, `0, 2, 4 and 12 more`."""
    runs = []
    for _, run in groupby(enumerate(sorted(ranks)), lambda pair: pair[1] - pair[0]):
        members = [rank for _, rank in run]
        if len(members) > 2:
            runs.append((f"{members[0]}–{members[-1]}", len(members)))
        else:
            runs += [(str(rank), 1) for rank in members]
    shown = [text for text, _ in runs[:_RUNS_SHOWN]]
    more = sum(count for _, count in runs[_RUNS_SHOWN:])
    if more:
        return f"{', '.join(shown)} and {more:,} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def ranks_text(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 1 and 5`."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {numbers_text(ranks)}"
