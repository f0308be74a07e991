"""The table of GPU work by name, or by name and the operator that launched it."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.operators.call_groups import cell_keys, cell_operators, matching
from tb_gpudiag.report.slices.operators.call_weights import CallData
from tb_gpudiag.report.slices.parameters import WantedRows
from tb_gpudiag.report.slices.prepared import NS_PER_US, Prepared
from tb_gpudiag.vocabulary.kernel_families import Arithmetic, Family

_OPERATORS = 3
"""Operators of a row. The others are counted."""


def slice_kernels(
    prepared: Prepared, group: str, wanted: WantedRows, start_us: float | None, end_us: float | None
) -> pb.KernelTable:
    """Return rows of GPU work, the largest first."""
    data = CallData(prepared, start_us, end_us)
    weights = data.weights
    cells = np.flatnonzero(weights.cell_count > 0)
    name = data.array("cell_name").astype(np.int64)[cells]
    shown = matching(data, name, wanted.text)
    cells = cells[shown]
    key, member = np.unique(cell_keys(data, group)[cells], return_inverse=True)
    number = len(key)
    total = np.bincount(member, weights.cell_ns[cells], number)
    count = np.bincount(member, weights.cell_count[cells], number)
    most = np.zeros(number, np.int64)
    np.maximum.at(most, member, weights.cell_most_ns[cells])
    columns = {"total": total, "count": count, "mean": total / np.maximum(count, 1), "max": most}
    order = np.lexsort((-total, -columns[wanted.sort]))
    by_row = np.argsort(member, kind="stable")
    borders = np.searchsorted(member[by_row], np.arange(number + 1))
    operator = cell_operators(data)
    of_all = float(weights.cell_ns.sum())
    rows = []
    for row in order[: wanted.limit].tolist():
        own = cells[by_row[borders[row] : borders[row + 1]]]
        rows.append(_row(data, own, operator[own], of_all))
        rows[-1].key = key[row]
    others = cells[np.isin(member, order[wanted.limit :])]
    return pb.KernelTable(
        state="ready",
        progress=1.0,
        group=group,
        rows=rows,
        total_rows=number,
        rest=_figures(data, others, of_all),
    )


def _row(data: CallData, cells: Int64, operator: Int64, of_all: float) -> pb.KernelRow:
    first = int(cells[0])
    known, member = np.unique(operator, return_inverse=True)
    time = np.bincount(member, data.weights.cell_ns[cells])
    named = [int(i) for i in np.argsort(-time, kind="stable") if known[i] != NONE]
    found = pb.KernelRow(
        name=data.name(int(data.array("cell_name")[first])),
        family=Family(int(data.array("cell_family")[first])).label,
        arithmetic=Arithmetic(int(data.array("cell_arithmetic")[first])).name.lower(),
        operators=[data.name(int(known[i])) for i in named[:_OPERATORS]],
        more_operators=max(0, len(named) - _OPERATORS),
    )
    found.MergeFrom(_figures(data, cells, of_all))
    return found


def _figures(data: CallData, cells: Int64, of_all: float) -> pb.KernelRow:
    """Return these cells as one row."""
    weights = data.weights
    if not len(cells):
        return pb.KernelRow()
    time, count = float(weights.cell_ns[cells].sum()), float(weights.cell_count[cells].sum())
    rate = data.array("cell_rate").astype(np.int64)[cells]
    known = rate != NONE
    rated_ns = weights.cell_ns[cells][known]
    rated = float(rated_ns.sum())
    operations, moved = (
        float((rated_ns * data.array(name)[rate[known]]).sum()) if rated else 0.0
        for name in ("rate_operations", "rate_bytes")
    )
    # The mean of all calls: each cell keeps that of the whole recording.
    whole_ns = data.array("cell_ns")[cells]
    blocks = float(data.array("cell_blocks")[cells].sum())
    return pb.KernelRow(
        count=count,
        total_us=time / NS_PER_US,
        mean_us=time / count / NS_PER_US if count else 0,
        min_us=int(weights.cell_least_ns[cells].min()) / NS_PER_US,
        max_us=int(weights.cell_most_ns[cells].max()) / NS_PER_US,
        blocks_per_sm=blocks / float(whole_ns.sum()) if whole_ns.sum() else 0,
        teraflops=operations / rated / 1e3 if rated else 0,
        terabytes=moved / rated / 1e3 if rated else 0,
        share=time / of_all if of_all else 0,
    )
