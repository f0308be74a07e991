"""Events by name: each distinct name is compared once with a pattern of vocabulary/."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from tb_gpudiag.arrays import Bool, Int32, Int64, mask_of
from tb_gpudiag.trace.events import Events


def match(events: Events, pattern: re.Pattern[str]) -> Bool:
    """Mask of the events whose whole name matches, shape (n,)."""
    table = events.matcher.matches(pattern)
    return table[events.name] if table.any() else np.zeros(len(events), np.bool_)


def occurs(events: Events, pattern: re.Pattern[str]) -> bool:
    """Whether the whole name of an event matches."""
    return bool((events.matcher.matches(pattern) & events.has_name).any())


def match_some(events: Events, pattern: re.Pattern[str], some: Int64) -> Bool:
    """Mask of `some` events (indices) whose whole name matches, shape of `some`. No other names are compared:
    calls and kernels have hundreds, Python frames tens of thousands."""
    name = events.name[some]
    table = mask_of(name, len(events.names))
    used = np.flatnonzero(table)
    table[used] = events.matcher.matches_some(pattern, used)
    return table[name]


def kind_by_name(events: Events, table: Iterable[tuple[int, re.Pattern[str]]], otherwise: int) -> Int32:
    """Return the kind of each name, shape of `events.names`: the kind of the first row whose pattern matches
    the whole name, or `otherwise`."""
    kinds = np.full(len(events.names), otherwise, np.int32)
    for kind, pattern in reversed(list(table)):
        kinds[events.matcher.matches(pattern)] = kind
    return kinds
