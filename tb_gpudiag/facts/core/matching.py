"""Events by name: each distinct name is compared once with a pattern of trace/vocabulary/."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from tb_gpudiag.trace.events import Bool, Events, Int64
from tb_gpudiag.trace.vocabulary.patterns import LONGEST_MATCHED


def match(events: Events, pattern: re.Pattern[str]) -> Bool:
    """Mask of the events whose whole name matches, shape (n,)."""
    matches = (pattern.fullmatch(name, 0, LONGEST_MATCHED) is not None for name in events.names)
    table = np.fromiter(matches, np.bool_, len(events.names))
    return table[events.name] if len(table) else np.zeros(len(events), np.bool_)


def kind_by_name(names: list[str], table: Iterable[tuple[int, re.Pattern[str]]], otherwise: int) -> Int64:
    """Return the kind of each name, shape of `names`: that of the first row whose pattern matches the whole
    name, else `otherwise`."""
    rows = [(kind, pattern.fullmatch) for kind, pattern in table]
    kinds = (
        next((kind for kind, matches in rows if matches(name, 0, LONGEST_MATCHED)), otherwise)
        for name in names
    )
    return np.fromiter(kinds, np.int64, len(names))
