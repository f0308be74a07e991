"""The table of operators: host and GPU time, self and total, by name, input shapes, call stack or module;
and the table of GPU work by name, or by name and the operator that launched it.

What counts as an operator's own is as in torch's key_averages(): its duration without the operators, ranges
and runtime calls inside it, and the GPU work that it launched without those. Calls of an operator inside
one of the same name count again in totals. A module has the operators that run in it; in backward, those of
its forward operators.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, summed
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.operators.call_groups import (
    OUTSIDE,
    CallData,
    Floats,
    cell_keys,
    cell_operators,
    matching,
    module_keys,
    modules_inside,
    node_keys,
    short_stack,
)
from tb_gpudiag.report.slices.prepared import NS_PER_US, Prepared
from tb_gpudiag.report.slices.slice_table import WantedRows
from tb_gpudiag.vocabulary.kernel_families import Arithmetic, Family
from tb_gpudiag.vocabulary.marks import module_name

_NO_MODULE = "(outside of modules)"

_OPERATORS = 3
"""Operators of a row. The others are counted."""


@dataclass(frozen=True, eq=False)
class _Table:
    """Columns, one row per group of calls, shape (r,). node: one of the group."""

    key: Int64
    node: Int64
    calls: Floats
    host_self: Floats
    host_total: Floats
    gpu_self: Floats
    gpu_total: Floats
    tensor: Floats
    operations: Floats
    moved: Floats
    least: Floats
    rated: Floats

    def order(self, by: str) -> Int64:
        columns = (getattr(self, by), self.gpu_self, self.host_self, self.calls)
        return np.lexsort(tuple(-column for column in reversed(columns)))


def slice_operators(
    prepared: Prepared,
    kind: str,
    group: str,
    wanted: WantedRows,
    start_us: float | None,
    end_us: float | None,
) -> pb.OperatorTable:
    """Return rows of a table of calls of one kind, the largest first."""
    data = CallData(prepared, start_us, end_us)
    table = _table(data, group, kind)
    name = data.array("call_name").astype(np.int64)[table.node]
    if group == "module":
        module = data.array("call_module").astype(np.int64)[table.node]
        name = np.where(module == NONE, NONE, data.array("call_name").astype(np.int64)[module])
    shown = np.flatnonzero(matching(data, name, wanted.text))
    table = _Table(**{column.name: getattr(table, column.name)[shown] for column in fields(_Table)})
    order = table.order(wanted.sort)
    first, others = order[: wanted.limit], order[wanted.limit :]
    return pb.OperatorTable(
        group=group,
        kind=kind,
        rows=[_row(data, table, int(row), group) for row in first],
        total_rows=len(order),
        rest=_together(table, others),
        all=_together(table, order),
        has_shapes=data.meta["has_shapes"],
        has_stacks=data.meta["has_stacks"],
        has_modules=data.meta["has_modules"],
        has_gpu=bool(len(prepared["run_cell"])),
    )


def _table(data: CallData, group: str, kind: str) -> _Table:
    keys = node_keys(data, group, kind)
    weights = data.weights
    ran = (weights.calls > 0) & (keys != NONE)
    nodes = np.flatnonzero(ran)
    key, node, member = np.unique(keys[nodes], return_index=True, return_inverse=True)
    number = len(key)
    owner, gpu_self = _own_work(data, kind)
    host_self = data.self_ns("call_parent" if kind == "python" else "call_caller")

    def total(values: Int64) -> Floats:
        return _sums(member, values[nodes], number)

    outer = _outermost(data, keys) if kind == "python" else np.ones(len(keys), np.bool_)
    calls, host_total = total(weights.calls), total(np.where(outer, weights.host_ns, 0))
    gpu_total = total(np.where(outer, data.below(weights.run_ns), 0))
    if group == "module":
        outside = key == OUTSIDE
        calls = np.where(outside, calls, _of_modules(data, key, weights.calls))
        host_total, gpu_total = (
            np.where(
                outside, total(values), _of_modules(data, key, modules_inside(data, np.where(ran, values, 0)))
            )
            for values in (host_self, gpu_self)
        )
    # Work counts for the row of its owner, whose own host time may be outside of the range.
    row = np.full(len(keys) + 1, NONE, np.int64)
    row[nodes] = member
    cell_row = row[owner]
    known = np.flatnonzero(cell_row != NONE)
    rate = data.array("cell_rate").astype(np.int64)[known]
    rated = np.where(rate != NONE, weights.cell_ns[known], 0).astype(np.float64)
    tensor = data.array("cell_arithmetic")[known] == Arithmetic.TENSOR_CORES

    def of_work(values: Floats) -> Floats:
        return _sums(cell_row[known], values, number)

    return _Table(
        key=key,
        node=nodes[node],
        calls=calls,
        host_self=total(host_self),
        host_total=host_total,
        gpu_self=total(gpu_self),
        gpu_total=gpu_total,
        tensor=of_work(np.where(tensor, weights.cell_ns[known], 0).astype(np.float64)),
        operations=of_work(rated * _rates(data, "rate_operations", rate)),
        moved=of_work(rated * _rates(data, "rate_bytes", rate)),
        least=of_work(rated * _rates(data, "rate_least", rate)),
        rated=of_work(rated),
    )


def _outermost(data: CallData, keys: Int64) -> Bool:
    """Mask of the nodes that are in no other node with their key: functions call themselves."""
    number = len(keys)
    order = np.argsort(keys, kind="stable")  # nodes of one key stay in depth-first order
    group = np.cumsum(np.r_[True, np.diff(keys[order]) != 0]) - 1 if number else order
    base = group * (number + 1)
    reached = np.maximum.accumulate(np.r_[0, data.array("call_last")[order] + base])[:-1]
    found = np.ones(number, np.bool_)
    found[order] = order + base >= reached
    return found


def _sums(group: Int64, values: Int64 | Floats, number: int) -> Floats:
    return np.bincount(group, values, number).astype(np.float64)


def _own_work(data: CallData, kind: str) -> tuple[Int64, Int64]:
    """Return the node that each cell's work counts for, and the time of each node's own work."""
    cell_node = data.array("cell_node").astype(np.int64)
    weights = data.weights
    number = len(weights.calls)
    owners = {"call": np.arange(number), "python": data.array("call_python").astype(np.int64)}
    of_node = owners.get(kind, data.array("call_owner").astype(np.int64))
    of_cell = np.where(cell_node == NONE, NONE, of_node[cell_node]) if number else cell_node
    known = of_node != NONE
    gpu_self = summed(of_node[known], weights.run_ns[known], number)
    return of_cell, gpu_self


def _of_modules(data: CallData, key: Int64, values: Int64) -> Floats:
    """Add up the values of the module nodes of each key."""
    keys = module_keys(data)
    known = np.flatnonzero(keys != NONE)
    place = np.searchsorted(key, keys[known])
    fits = place < len(key)
    fits[fits] = key[place[fits]] == keys[known[fits]]
    return _sums(place[fits], values[known[fits]], len(key))


def _rates(data: CallData, name: str, rate: Int64) -> Floats:
    """Return the rate of each cell's operator per ns, 0 if it is not known."""
    rates = data.array(name)
    return rates[rate] * (rate != NONE) if len(rates) else np.zeros(len(rate))


def _row(data: CallData, table: _Table, row: int, group: str) -> pb.OperatorRow:
    node = int(table.node[row])
    module = int(data.array("call_module")[node])
    found = _figures(table, np.array([row]))
    found.key = table.key[row]
    found.module = "" if module == NONE else module_name(data.node_name(module))
    if group == "module":
        found.name = found.module or _NO_MODULE
        return found
    found.name = data.node_name(node)
    if group == "shapes":
        found.shapes = data.text(int(data.array("call_shapes")[node]))
    if group == "stack":
        found.stack.extend(short_stack(data, node))
    else:
        found.module = ""
    return found


def _together(table: _Table, rows: Int64) -> pb.OperatorRow:
    """Return these rows as one. Totals contain one another: their sum says nothing."""
    found = _figures(table, rows)
    found.host_total_us = found.gpu_total_us = 0
    return found


def _figures(table: _Table, rows: Int64) -> pb.OperatorRow:
    rated = float(table.rated[rows].sum())
    return pb.OperatorRow(
        calls=table.calls[rows].sum(),
        host_self_us=table.host_self[rows].sum() / NS_PER_US,
        host_total_us=table.host_total[rows].sum() / NS_PER_US,
        gpu_self_us=table.gpu_self[rows].sum() / NS_PER_US,
        gpu_total_us=table.gpu_total[rows].sum() / NS_PER_US,
        tensor_core_us=table.tensor[rows].sum() / NS_PER_US,
        # Operations per ns are 1e9 FLOP/s, bytes per ns are 1 GB/s.
        teraflops=table.operations[rows].sum() / rated / 1e3 if rated else 0,
        terabytes=table.moved[rows].sum() / rated / 1e3 if rated else 0,
        reached=table.least[rows].sum() / rated if rated else 0,
    )


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
        rows.append(_kernel_row(data, own, operator[own], of_all))
        rows[-1].key = key[row]
    others = cells[np.isin(member, order[wanted.limit :])]
    return pb.KernelTable(
        group=group, rows=rows, total_rows=number, rest=_kernel_figures(data, others, of_all)
    )


def _kernel_row(data: CallData, cells: Int64, operator: Int64, of_all: float) -> pb.KernelRow:
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
    found.MergeFrom(_kernel_figures(data, cells, of_all))
    return found


def _kernel_figures(data: CallData, cells: Int64, of_all: float) -> pb.KernelRow:
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
