"""Events by name: each distinct name is compared once with a pattern of trace/vocabulary/."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from tb_gpudiag.trace.events import Bool, Events, Int64
from tb_gpudiag.trace.vocabulary.patterns import LONGEST_MATCHED


def match(events: Events, pattern: re.Pattern[str]) -> Bool:
    """Mask of the events whose whole name matches, shape (n,)."""
    table = _of_names(events, pattern)
    return table[events.name] if table.any() else np.zeros(len(events), np.bool_)


def occurs(events: Events, pattern: re.Pattern[str]) -> bool:
    """Whether the whole name of an event matches."""
    return bool((_of_names(events, pattern) & events.has_name).any())


def match_some(events: Events, pattern: re.Pattern[str], some: Int64) -> Bool:
    """Mask of `some` events (indices) whose whole name matches, shape of `some`. No other names are compared:
    calls and kernels have hundreds, Python frames tens of thousands."""
    name = events.name[some]
    used = np.zeros(len(events.names), np.bool_)
    used[name] = True
    return _table(events.names, pattern, np.flatnonzero(used))[name]


def _table(names: list[str], pattern: re.Pattern[str], numbers: Int64) -> Bool:
    """Mask of the names with these numbers that match, shape of `names`."""
    found = [i for i in numbers.tolist() if pattern.fullmatch(names[i], 0, LONGEST_MATCHED)]
    table = np.zeros(len(names), np.bool_)
    table[found] = True
    return table


def _of_names(events: Events, pattern: re.Pattern[str]) -> Bool:
    """Mask of the names that match, shape of `events.names`."""
    table = events.names_by_pattern.get(pattern)
    if table is None:
        table = _table(events.names, pattern, np.arange(len(events.names)))
        events.names_by_pattern[pattern] = table
    return table


def kind_by_name(events: Events, table: Iterable[tuple[int, re.Pattern[str]]], otherwise: int) -> Int64:
    """Return the kind of each name, shape of `events.names`: that of the first row whose pattern matches the
    whole name, else `otherwise`."""
    kinds = np.full(len(events.names), otherwise, np.int64)
    for kind, pattern in reversed(list(table)):
        kinds[_of_names(events, pattern)] = kind
    return kinds
