"""Kernels and operators of a side as rows to align, and aligned pairs as rows of the comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tb_gpudiag.digest.digest import PATH_SEPARATOR, REST, Digest, numbers, texts
from tb_gpudiag.jobs.compare.alignment import Pair, Row, common_path
from tb_gpudiag.jobs.compare.side import Side


def kernel_rows(side: Side) -> list[Row]:
    """GPU work, in GPU time per step and rank."""
    return [
        Row(*row)
        for digest in side.digests
        for row in zip(
            texts(digest.kernels, "name"),
            texts(digest.kernels, "family"),
            _paths(digest.kernels),
            texts(digest.kernels, "shapes"),
            _per_step(side, digest, digest.kernels, "count"),
            _per_step(side, digest, digest.kernels, "time_ns"),
            strict=True,
        )
    ]


def operator_rows(side: Side) -> list[Row]:
    """Operators, in self time on the host per step and rank. Each is a family by itself."""
    return [
        Row(name, name, path, "", count, time_ns)
        for digest in side.digests
        for name, path, count, time_ns in zip(
            texts(digest.operators, "operator"),
            _paths(digest.operators),
            _per_step(side, digest, digest.operators, "count"),
            _per_step(side, digest, digest.operators, "host_ns"),
            strict=True,
        )
        if name
    ]


def _paths(table: pa.Table) -> Iterable[tuple[str, ...]]:
    return (tuple(path.split(PATH_SEPARATOR)) if path else () for path in texts(table, "path"))


def _per_step(side: Side, digest: Digest, table: pa.Table, column: str) -> list[float]:
    return [int(value) * side.per_step(digest) for value in numbers(table, column)]


@dataclass(frozen=True)
class Change:
    """Work of the base and what it became, as names; "" where it was added or removed. Per step."""

    base: tuple[str, ...]
    candidate: tuple[str, ...]
    family: str
    path: tuple[str, ...]
    base_ns: float
    candidate_ns: float
    base_count: float
    candidate_count: float


def changes(pairs: Sequence[Pair]) -> list[Change]:
    """Sum pairs of the same names over all paths, largest difference first.

    What was added or removed at some paths is summed with the work of the same name elsewhere.
    """
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Pair]] = {}
    for pair in pairs:
        base, candidate = _names(pair.base), _names(pair.candidate)
        groups.setdefault((base or candidate, candidate or base), []).append(pair)
    found = [_change(group) for group in groups.values()]
    return sorted(found, key=lambda c: (-abs(c.candidate_ns - c.base_ns), -c.base_ns, c.base, c.candidate))


def rest(left_out: Sequence[Change]) -> Change:
    """Sum changes that a list has no room for."""
    return Change(
        (REST,),
        (REST,),
        "",
        (),
        sum(change.base_ns for change in left_out),
        sum(change.candidate_ns for change in left_out),
        sum(change.base_count for change in left_out),
        sum(change.candidate_count for change in left_out),
    )


def _names(rows: Sequence[Row]) -> tuple[str, ...]:
    """Names, most time first."""
    time_ns: dict[str, float] = {}
    for row in rows:
        time_ns[row.name] = time_ns.get(row.name, 0.0) + row.time_ns
    return tuple(sorted(time_ns, key=lambda name: (-time_ns[name], name)))


def _change(pairs: Sequence[Pair]) -> Change:
    of_base = [row for pair in pairs for row in pair.base]
    of_candidate = [row for pair in pairs for row in pair.candidate]
    families = {row.family for row in (*of_base, *of_candidate)}
    return Change(
        _names(of_base),
        _names(of_candidate),
        families.pop() if len(families) == 1 else "",
        common_path([pair.path for pair in pairs]),
        sum(row.time_ns for row in of_base),
        sum(row.time_ns for row in of_candidate),
        sum(row.count for row in of_base),
        sum(row.count for row in of_candidate),
    )
