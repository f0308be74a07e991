"""Kernels of the same operators on all ranks: is there more work, or does the same work take longer?"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from tb_gpudiag.arrays import Float64, Int64
from tb_gpudiag.digest.digest import REST, Digest, numbers, texts
from tb_gpudiag.frozen import dataclass

ROWS_COMPARED: Final = 400
"""Rows of each rank's table of kernels, those with most time."""

_NOT_COMPUTING: Final = frozenset({"collective", "copy", "set"})

# The first inputs of an operator. Later ones are scalars and options.
_INPUTS: Final = 6
_UNKNOWN: Final = (math.nan,) * _INPUTS

# If the operators of all ranks differ, there is a column for each row.
_MOST_CELLS: Final = 4_000_000


@dataclass(frozen=True, eq=False)
class KernelsCompared:
    """Each rank's kernels relative to its peers' kernels, shape (members,) each; NaN if they cannot be
    compared.

    time: how many times as long they take. work: how many times as much work they do, by the number of
    kernels and the sizes of their inputs. slower: how many times as long the same work takes, median over the
    operators. shaped: share of the time that is in kernels with known shapes.
    """

    time: Float64
    work: Float64
    slower: Float64
    shaped: Float64


def compare_kernels(members: Sequence[Digest], role: Int64) -> KernelsCompared:
    """Compare each rank's kernels, by operator, with those of the ranks of the same role."""
    tables, kinds = _tables(members)
    width = max(1, min(kinds, _MOST_CELLS // max(1, len(members))))
    time, count, shaped = np.zeros((3, len(members), width))
    elements = np.zeros((len(members), width, _INPUTS))
    for index, (table, times_run, took) in enumerate(tables):
        some = table.kind < width
        kind, row, sizes = table.kind[some], table.row[some], table.sizes[some]
        known = ~np.isnan(sizes[:, 0])
        np.add.at(time[index], kind, took[row])
        np.add.at(count[index], kind, times_run[row])
        np.add.at(shaped[index], kind[known], took[row[known]])
        np.add.at(elements[index], kind[known], sizes[known] * times_run[row[known], None])
    found = KernelsCompared(*(np.full(len(members), np.nan) for _ in range(4)))
    for one in np.unique(role).tolist():
        own = np.flatnonzero(role == one)
        if len(own) > 1:
            _compare(found, own, time[own], count[own], shaped[own], elements[own])
    return found


class _Table(NamedTuple):
    """Rows of a table that compute: which ones, the kind of kernel of each, shape (r,), and the sizes of its
    operator's inputs, shape (r, _INPUTS), NaN if they are not known."""

    row: Int64
    kind: Int64
    sizes: Float64


def _tables(members: Sequence[Digest]) -> tuple[list[tuple[_Table, Int64, Int64]], int]:
    """Return each member's rows that compute, how often each ran and how long, and the number of kinds."""
    names: dict[tuple[str, str], int] = {}
    # Ranks of a job run the same kernels.
    known: dict[tuple[tuple[str, ...], ...], _Table] = {}
    found = []
    for member in members:
        kernels = member.kernels.slice(0, ROWS_COMPARED)
        columns = tuple(tuple(texts(kernels, name)) for name in ("family", "name", "operator", "shapes"))
        if columns not in known:
            known[columns] = _table(columns, names)
        found.append((known[columns], numbers(kernels, "count"), numbers(kernels, "time_ns")))
    return found, len(names)


def _table(columns: Sequence[Sequence[str]], names: dict[tuple[str, str], int]) -> _Table:
    row, kind, sizes = [], [], []
    for number, (family, name, operator, shapes) in enumerate(zip(*columns, strict=True)):
        if family not in _NOT_COMPUTING and name not in ("", REST):
            # Which kernel an operator runs depends on the shapes; without an operator, the name is all.
            key = (operator, family) if operator else ("", name)
            row.append(number)
            kind.append(names.setdefault(key, len(names)))
            sizes.append(_elements(shapes) or _UNKNOWN)
    of_inputs = np.array(sizes, np.float64).reshape(-1, _INPUTS)
    return _Table(np.array(row, np.int64), np.array(kind, np.int64), of_inputs)


def _compare(
    found: KernelsCompared, own: Int64, time: Float64, count: Float64, shaped: Float64, elements: Float64
) -> None:
    usual = _lower_median(time)
    shared = (usual > 0) & (time > 0)
    with_shapes = np.where(shared, shaped, 0).sum(axis=1) / np.maximum(
        1, np.where(shared, time, 0).sum(axis=1)
    )
    of_time = _ratio(time, usual)
    work = _ratio(count, _lower_median(count))
    by_input = _ratio(elements, _lower_median(elements))
    furthest = np.abs(np.log(by_input)).argmax(axis=2)
    by_size = np.take_along_axis(by_input, furthest[:, :, None], axis=2)[:, :, 0]
    work = np.where((shaped > 0) & (elements.sum(axis=2) > 0), by_size, work)
    weight = np.where(shared, usual[None, :], 0.0)
    total = weight.sum(axis=1)
    for i, member in enumerate(own.tolist()):
        if total[i] <= 0:
            continue
        found.time[member] = (of_time[i] * weight[i]).sum() / total[i]
        found.work[member] = (work[i] * weight[i]).sum() / total[i]
        values = of_time[i] / work[i]
        weights = weight[i]
        order = np.argsort(np.where(weights > 0, values, np.inf))
        reached = np.cumsum(weights[order])
        found.slower[member] = float(values[order[np.searchsorted(reached, reached[-1] / 2)]])
        found.shaped[member] = with_shapes[i]


def _lower_median(values: Float64) -> Float64:
    return np.sort(values, axis=0)[(len(values) - 1) // 2]


def _ratio(values: Float64, usual: Float64) -> Float64:
    """Return values divided by the usual values; 1 where either is 0."""
    known = (values > 0) & (usual[None] > 0)
    return np.where(known, values / np.where(usual[None] > 0, usual[None], 1.0), 1.0)


@lru_cache(maxsize=10_000)
def _elements(shapes: str) -> tuple[float, ...] | None:
    """Number of elements of each input; None if the shapes are not known."""
    try:
        read = json.loads(shapes) if shapes else None
    except ValueError:
        return None
    if not isinstance(read, list) or not read:
        return None
    found = [0.0] * _INPUTS
    for i, dims in enumerate(read[:_INPUTS]):
        if isinstance(dims, list) and dims and all(type(size) is int and 0 <= size < 2**40 for size in dims):
            found[i] = float(np.prod(np.array(dims, np.float64)))
    return tuple(found)
