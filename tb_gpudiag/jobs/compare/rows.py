"""Kernels and operators of a side as rows to align, and aligned pairs as rows of the comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tb_gpudiag.digest.digest import PATH_SEPARATOR, REST, Digest, numbers, texts
from tb_gpudiag.jobs.compare.alignment import Pair, Row, common_path
from tb_gpudiag.jobs.compare.side import Side


def kernel_rows(side: Side) -> list[Row]:
    """GPU work, in GPU time per step and rank."""
    return _rows(side, _gpu_work, ("name", "family", "shapes"), "time_ns")


def operator_rows(side: Side) -> list[Row]:
    """Operators, in self time on the host per step and rank. Each is a family by itself."""
    return _rows(side, lambda digest: digest.operators, ("operator", "operator", ""), "host_ns")


def _gpu_work(digest: Digest) -> pa.Table:
    """Without a GPU, the kernels are operators, which are compared anyway."""
    return digest.kernels if digest.about.devices else digest.kernels.slice(0, 0)


def _rows(
    side: Side, table_of: Callable[[Digest], pa.Table], columns: tuple[str, str, str], time: str
) -> list[Row]:
    """Rows of all ranks, those that are alike as one. Columns: of name, family and shapes, "" for none."""
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
        Row(name, family, tuple(path.split(PATH_SEPARATOR)) if path else (), shapes, count, time_ns)
        for (name, family, path, shapes), (count, time_ns) in totals.items()
        if name
    ]


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
