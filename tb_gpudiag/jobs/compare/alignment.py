"""Align the kernels or operators of two sides, so that a renamed kernel or a fused pair meets its ancestor.

Rows are paired by ever looser keys. Each row is in exactly one pair, so times and counts of the pairs add up
to those of both tables.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import field
from typing import Final

import pyarrow as pa

from tb_gpudiag.digest.digest import PATH_SEPARATOR, REST, Digest, numbers, texts
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.compare.side import Side
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.vocabulary.patterns import lazy_re

MOST_FUSED: Final = 8
"""Kernels of different families under one ancestor are paired as one group if they have at most this many
names. Fusion replaces a handful. With more names, a group says nothing, so each family is paired by
itself."""

_COPY_ENGINE: Final = lazy_re(r"Memcpy|Memset|Copy(Device|Host)To")


@dataclass(frozen=True)
class WorkRow:
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

    base: list[WorkRow] = field(default_factory=list)
    candidate: list[WorkRow] = field(default_factory=list)

    @property
    def path(self) -> tuple[str, ...]:
        """The nearest common ancestor of all rows."""
        return common_path([row.path for row in (*self.base, *self.candidate)])


Key = Callable[[WorkRow], Hashable]


def align(base: Sequence[WorkRow], candidate: Sequence[WorkRow]) -> list[Pair]:
    """Pair the rows of two tables.

    First, rows with the same path and name are paired, with the same shapes if they have shapes; then rows
    with the same path and family. The rest is paired below the nearest common ancestor: by name, then as one
    small group if the families differ, as after a fusion, else by family. Finally, rows are paired by family
    wherever they are. What is left was added or removed.
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

    base: list[WorkRow]
    candidate: list[WorkRow]
    pairs: list[Pair] = field(default_factory=list)

    def by(self, key: Key, among: Callable[[WorkRow], bool] = lambda _row: True) -> None:
        """Pair rows of both sides with the same key."""
        base, candidate = _grouped(self.base, key, among), _grouped(self.candidate, key, among)
        self._take((base[k], candidate[k]) for k in base if k in candidate)

    def below_ancestors(self, depth: int) -> None:
        """Pair rows below the same ancestor: a small group whole, a large one by family."""

        def key(row: WorkRow) -> Hashable:
            return row.path[:depth]

        base, candidate = (_grouped(rows, key, _at_least(depth)) for rows in (self.base, self.candidate))
        found: list[tuple[list[WorkRow], list[WorkRow]]] = []
        for ancestor in [a for a in base if a in candidate]:
            found += _below(base[ancestor], candidate[ancestor])
        self._take(found)

    def _take(self, found: Iterable[tuple[list[WorkRow], list[WorkRow]]]) -> None:
        taken: set[int] = set()
        for base, candidate in found:
            self.pairs.append(Pair(base, candidate))
            taken.update(map(id, base), map(id, candidate))
        if taken:
            self.base = [row for row in self.base if id(row) not in taken]
            self.candidate = [row for row in self.candidate if id(row) not in taken]


def _below(base: list[WorkRow], candidate: list[WorkRow]) -> Iterable[tuple[list[WorkRow], list[WorkRow]]]:
    of_base, of_candidate = _by_family(base), _by_family(candidate)
    by_family = [(of_base[family], of_candidate[family]) for family in of_base if family in of_candidate]
    fused, into = _that_compute(base), _that_compute(candidate)
    if not fused or not into or _by_family(fused).keys() == _by_family(into).keys():
        return by_family
    if len({row.name for row in (*fused, *into)}) > MOST_FUSED:
        return by_family
    return [(fused, into), *_below(_without(base, fused), _without(candidate, into))]


def _by_family(rows: Iterable[WorkRow]) -> dict[Hashable, list[WorkRow]]:
    return _grouped(rows, lambda row: row.family)


def _that_compute(rows: Iterable[WorkRow]) -> list[WorkRow]:
    # Whether the row is a kernel that computes. Copy engines and networks do not.
    return [
        row for row in rows if (row.family != Family.COLLECTIVE.label and not _COPY_ENGINE.match(row.name))
    ]


def _without(rows: Iterable[WorkRow], others: Iterable[WorkRow]) -> list[WorkRow]:
    left_out = {id(row) for row in others}
    return [row for row in rows if id(row) not in left_out]


def _name_below(depth: int) -> Key:
    return lambda row: (row.path[:depth], row.name)


def _at_least(depth: int) -> Callable[[WorkRow], bool]:
    return lambda row: len(row.path) >= depth


def _grouped(
    rows: Iterable[WorkRow], key: Key, among: Callable[[WorkRow], bool] = lambda _row: True
) -> dict[Hashable, list[WorkRow]]:
    groups: defaultdict[Hashable, list[WorkRow]] = defaultdict(list)
    for row in rows:
        if among(row):
            groups[key(row)].append(row)
    return dict(groups)


def kernel_rows(side: Side) -> list[WorkRow]:
    """Return GPU work, in GPU time per step and rank. Kernels of a digest without a GPU are operators, which
    are compared anyway."""
    columns = ("name", "family", "shapes")
    return _rows(side, lambda one: one.kernels[: None if one.about.devices else 0], columns, "time_ns")


def operator_rows(side: Side) -> list[WorkRow]:
    """Return operators, in self time on the host per step and rank. Each operator is a family of its own."""
    return _rows(side, lambda digest: digest.operators, ("operator", "operator", ""), "host_ns")


def _rows(
    side: Side, table_of: Callable[[Digest], pa.Table], columns: tuple[str, str, str], time: str
) -> list[WorkRow]:
    """Return the rows of all ranks, equal rows as one. columns: of name, family and shapes, "" for none."""
    totals: dict[tuple[str, str, str, str], tuple[float, float]] = {}
    for digest in side.digests:
        table, factor = table_of(digest), side.per_step(digest)
        names, families, shapes = (
            texts(table, column) if column else [""] * len(table) for column in columns
        )
        keys = zip(names, families, texts(table, "path"), shapes, strict=True)
        figures = zip(numbers(table, "count").tolist(), numbers(table, time).tolist(), strict=True)
        for key, (count, time_ns) in zip(keys, figures, strict=True):
            known = totals.get(key, (0.0, 0.0))
            totals[key] = (known[0] + count * factor, known[1] + time_ns * factor)
    return [
        WorkRow(name, family, tuple(path.split(PATH_SEPARATOR)) if path else (), shapes, count, time_ns)
        for (name, family, path, shapes), (count, time_ns) in totals.items()
        if name
    ]


@dataclass(frozen=True)
class WorkChange:
    """Work of the base and what it became, as names, per step. Added work has no base, removed work no
    candidate."""

    base: tuple[str, ...]
    candidate: tuple[str, ...]
    family: str
    path: tuple[str, ...]
    base_ns: float
    candidate_ns: float
    base_count: float
    candidate_count: float


def changes(pairs: Sequence[Pair]) -> list[WorkChange]:
    """Sum pairs of the same names over all paths, largest difference first.

    What was added or removed at some paths is summed with the work of the same name elsewhere.
    """
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Pair]] = {}
    for pair in pairs:
        base, candidate = _names(pair.base), _names(pair.candidate)
        groups.setdefault((base or candidate, candidate or base), []).append(pair)
    found = [_change(group) for group in groups.values()]
    return sorted(found, key=lambda c: (-abs(c.candidate_ns - c.base_ns), -c.base_ns, c.base, c.candidate))


def rest(left_out: Sequence[WorkChange]) -> WorkChange:
    """Sum changes that a list has no room for."""
    return WorkChange(
        (REST,),
        (REST,),
        "",
        (),
        sum(change.base_ns for change in left_out),
        sum(change.candidate_ns for change in left_out),
        sum(change.base_count for change in left_out),
        sum(change.candidate_count for change in left_out),
    )


def _names(rows: Sequence[WorkRow]) -> tuple[str, ...]:
    """Return the names, most time first."""
    time_ns: dict[str, float] = {}
    for row in rows:
        time_ns[row.name] = time_ns.get(row.name, 0.0) + row.time_ns
    return tuple(sorted(time_ns, key=lambda name: (-time_ns[name], name)))


def _change(pairs: Sequence[Pair]) -> WorkChange:
    of_base = [row for pair in pairs for row in pair.base]
    of_candidate = [row for pair in pairs for row in pair.candidate]
    families = {row.family for row in (*of_base, *of_candidate)}
    return WorkChange(
        _names(of_base),
        _names(of_candidate),
        families.pop() if len(families) == 1 else "",
        common_path([pair.path for pair in pairs]),
        sum(row.time_ns for row in of_base),
        sum(row.time_ns for row in of_candidate),
        sum(row.count for row in of_base),
        sum(row.count for row in of_candidate),
    )
