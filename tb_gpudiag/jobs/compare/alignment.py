"""Align two tables of kernels or operators, so that a renamed kernel or a fused pair meets its ancestor.

Rows are paired by ever looser keys. Each row is in exactly one pair, so times and counts of the pairs add up
to those of both tables.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tb_gpudiag.vocabulary.kernel_families import Family

MOST_FUSED: Final = 8
"""Kernels of different families under one ancestor are paired as one group if they have at most so many
names. Fusion replaces a handful; with more, the group says nothing, and each family is paired by itself."""

_COPY_ENGINE: Final = re.compile(r"Memcpy|Memset|Copy(Device|Host)To")


@dataclass(frozen=True)
class Row:
    """A kernel or an operator at one path and with one set of shapes, per step."""

    name: str
    family: str
    path: tuple[str, ...]  # outermost first
    shapes: str
    count: float
    time_ns: float


@dataclass
class Pair:
    """Rows of both sides that are the same work. A side is empty if the work was added or removed."""

    base: list[Row] = field(default_factory=list)
    candidate: list[Row] = field(default_factory=list)

    @property
    def path(self) -> tuple[str, ...]:
        """The nearest common ancestor of all rows."""
        return common_path([row.path for row in (*self.base, *self.candidate)])


Key = Callable[[Row], Hashable]


def align(base: Sequence[Row], candidate: Sequence[Row]) -> list[Pair]:
    """Pair the rows of two tables.

    First rows with the same path and name, with the same shapes if they have them; then with the same path
    and family. The rest is paired below the nearest common ancestor: by name, then as one small group if the
    families differ, as after a fusion, else by family. Finally by family wherever it is. What is left was
    added or removed.
    """
    state = _Unpaired(list(base), list(candidate))
    state.by(lambda row: (row.path, row.name, row.shapes))
    state.by(lambda row: (row.path, row.name))
    state.by(lambda row: (row.path, row.family))
    deepest = max((len(row.path) for row in (*state.base, *state.candidate)), default=0)
    for depth in range(deepest, -1, -1):
        state.by(_name_below(depth), _at_least(depth))
    for depth in range(deepest, 0, -1):
        state.below_ancestors(depth)
    state.by(lambda row: row.family)
    return [
        *state.pairs,
        *(Pair([row], []) for row in state.base),
        *(Pair([], [row]) for row in state.candidate),
    ]


def common_path(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return what all paths begin with."""
    shared = 0
    for names in zip(*paths, strict=False):
        if len(set(names)) > 1:
            break
        shared += 1
    return paths[0][:shared] if paths else ()


@dataclass
class _Unpaired:
    """Rows that have no counterpart yet, and the pairs made so far."""

    base: list[Row]
    candidate: list[Row]
    pairs: list[Pair] = field(default_factory=list)

    def by(self, key: Key, among: Callable[[Row], bool] = lambda _row: True) -> None:
        """Pair rows of both sides with the same key."""
        base, candidate = _grouped(self.base, key, among), _grouped(self.candidate, key, among)
        self._take((base[k], candidate[k]) for k in base if k in candidate)

    def below_ancestors(self, depth: int) -> None:
        """Pair rows below the same ancestor: a small group whole, a large one by family."""

        def key(row: Row) -> Hashable:
            return row.path[:depth]

        base, candidate = (_grouped(rows, key, _at_least(depth)) for rows in (self.base, self.candidate))
        found: list[tuple[list[Row], list[Row]]] = []
        for ancestor in [a for a in base if a in candidate]:
            found += _below(base[ancestor], candidate[ancestor])
        self._take(found)

    def _take(self, found: Iterable[tuple[list[Row], list[Row]]]) -> None:
        taken: set[int] = set()
        for base, candidate in found:
            self.pairs.append(Pair(base, candidate))
            taken.update(map(id, base), map(id, candidate))
        if taken:
            self.base = [row for row in self.base if id(row) not in taken]
            self.candidate = [row for row in self.candidate if id(row) not in taken]


def _below(base: list[Row], candidate: list[Row]) -> Iterable[tuple[list[Row], list[Row]]]:
    """Pairs of rows below one ancestor."""
    of_base, of_candidate = _by_family(base), _by_family(candidate)
    by_family = [(of_base[family], of_candidate[family]) for family in of_base if family in of_candidate]
    fused, into = _that_compute(base), _that_compute(candidate)
    if not fused or not into or _by_family(fused).keys() == _by_family(into).keys():
        return by_family
    if len({row.name for row in (*fused, *into)}) > MOST_FUSED:
        return by_family
    return [(fused, into), *_below(_without(base, fused), _without(candidate, into))]


def _by_family(rows: Iterable[Row]) -> dict[Hashable, list[Row]]:
    return _grouped(rows, lambda row: row.family)


def _that_compute(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if _can_be_fused(row)]


def _without(rows: Iterable[Row], others: Iterable[Row]) -> list[Row]:
    left_out = {id(row) for row in others}
    return [row for row in rows if id(row) not in left_out]


def _can_be_fused(row: Row) -> bool:
    """Whether the row is a kernel that computes. Copy engines and networks do not."""
    return row.family != Family.COLLECTIVE.label and not _COPY_ENGINE.match(row.name)


def _name_below(depth: int) -> Key:
    return lambda row: (row.path[:depth], row.name)


def _at_least(depth: int) -> Callable[[Row], bool]:
    return lambda row: len(row.path) >= depth


def _grouped(
    rows: Iterable[Row], key: Key, among: Callable[[Row], bool] = lambda _row: True
) -> dict[Hashable, list[Row]]:
    groups: defaultdict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        if among(row):
            groups[key(row)].append(row)
    return dict(groups)
