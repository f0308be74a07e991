"""One row of a table of operators or kernels in detail: its call stacks, kernels, shapes, longest calls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, summed
from tb_gpudiag.errors import UsageError
from tb_gpudiag.facts.core.intervals import heaviest
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.operators.call_groups import (
    cell_keys,
    cell_operators,
    module_keys,
    node_keys,
    stack_of,
)
from tb_gpudiag.report.slices.operators.call_weights import CallData
from tb_gpudiag.report.slices.prepared import NS_PER_US, Prepared
from tb_gpudiag.vocabulary.marks import module_name
from tb_gpudiag.vocabulary.recorded import Category

MOST_STACKS = 20
MOST_PARTS = 10


class _Row(NamedTuple):
    """What belongs to the row: masks over nodes and over cells."""

    nodes: Bool
    cells: Bool


def slice_call_details(
    prepared: Prepared, table: str, group: str, key: float, start_us: float | None, end_us: float | None
) -> pb.CallDetails:
    """Return the details of the row with this key. table: a kind of calls, or `kernel`. Raises UsageError:
    there is no such row."""
    data = CallData(prepared, start_us, end_us)
    kernels = table == "kernel"
    row = _kernel_row(data, group, int(key)) if kernels else _call_row(data, table, group, int(key))
    found = pb.CallDetails()
    weights = data.weights
    gpu_ns = data.below(weights.run_ns)
    if kernels:
        of_node = np.zeros(len(weights.calls), np.int64)
        cell_node = data.array("cell_node").astype(np.int64)
        own = np.flatnonzero(row.cells & (cell_node != NONE))
        np.add.at(of_node, cell_node[own], weights.cell_ns[own])
        _add_stacks(found, data, np.flatnonzero(of_node > 0), of_node, gpu_ns=of_node)
        parts, found.more_kernels = _parts(data, cell_operators(data), row.cells)
    else:
        nodes = np.flatnonzero(row.nodes & (weights.calls > 0))
        own_ns = gpu_ns if gpu_ns[nodes].any() else weights.host_ns
        _add_stacks(found, data, nodes, own_ns, gpu_ns=gpu_ns)
        inside = _inside(data, nodes)
        parts, found.more_kernels = _parts(data, data.array("cell_name").astype(np.int64), inside)
        _add_shapes(found, data, nodes)
        _add_neighbors(found, data, nodes)
    found.kernels.extend(parts)
    _add_longest(found, data, row, kernels=kernels)
    return found


def _call_row(data: CallData, kind: str, group: str, key: int) -> _Row:
    nodes = node_keys(data, group, kind) == key
    if group == "module":
        # The module's own calls say where it is called from and when.
        modules = module_keys(data) == key
        nodes = modules if modules.any() else nodes
    if not nodes.any():
        raise UsageError("There is no such row.", where="key")
    return _Row(nodes, np.zeros(0, np.bool_))


def _kernel_row(data: CallData, group: str, key: int) -> _Row:
    cells = cell_keys(data, group) == key
    if not cells.any():
        raise UsageError("There is no such row.", where="key")
    return _Row(np.zeros(0, np.bool_), cells & (data.weights.cell_count > 0))


def _inside(data: CallData, nodes: Int64) -> Bool:
    """Mask of the cells whose work was launched in the calls of these nodes."""
    number = len(data.prepared["call_parent"])
    depth = summed(nodes, 1, number + 1)
    np.add.at(depth, data.array("call_last")[nodes], -1)
    below = np.r_[np.cumsum(depth)[:number] > 0, False]  # one more, so that NONE is not below
    return below[data.array("cell_node")] & (data.weights.cell_count > 0)


def _add_stacks(found: pb.CallDetails, data: CallData, nodes: Int64, by_ns: Int64, *, gpu_ns: Int64) -> None:
    """Add the stacks with most time. Nodes with the same path and forward path are one."""
    flame, forward = (data.array(f"call_{part}").astype(np.int64)[nodes] for part in ("flame", "forward"))
    path = np.where(forward == NONE, NONE, data.array("call_flame").astype(np.int64)[forward])
    text = data.array("call_stack").astype(np.int64)[nodes]
    keys, member = np.unique(np.stack([flame, path, text]), axis=1, return_inverse=True)
    member, number = member.reshape(-1), keys.shape[1]
    time = np.bincount(member, by_ns[nodes], number)
    order = np.argsort(-time, kind="stable")
    whole = float(time.sum())
    found.more_stacks = max(0, number - MOST_STACKS)
    for group in order[:MOST_STACKS].tolist():
        own = nodes[member == group]
        stack = stack_of(data, int(own[0]))
        module = int(data.array("call_module")[own[0]])
        stack.module = "" if module == NONE else module_name(data.node_name(module))
        stack.calls = data.weights.calls[own].sum()
        stack.host_us = data.weights.host_ns[own].sum() / NS_PER_US
        stack.gpu_us = gpu_ns[own].sum() / NS_PER_US
        stack.share = time[group] / whole if whole else 0
        stack.node = int(keys[0, group])
        found.stacks.append(stack)


def _parts(data: CallData, name: Int64, cells: Bool) -> tuple[list[pb.CallPart], int]:
    """Return the names with most GPU time, and how many others there are."""
    own = np.flatnonzero(cells & (name != NONE))
    known, member = np.unique(name[own], return_inverse=True)
    time = np.bincount(member, data.weights.cell_ns[own], len(known))
    count = np.bincount(member, data.weights.cell_count[own], len(known))
    parts = [
        pb.CallPart(name=data.name(int(known[i])), count=count[i], us=time[i] / NS_PER_US)
        for i in np.argsort(-time, kind="stable")[:MOST_PARTS].tolist()
    ]
    return parts, max(0, len(known) - MOST_PARTS)


def _add_shapes(found: pb.CallDetails, data: CallData, nodes: Int64) -> None:
    shapes = data.array("call_shapes").astype(np.int64)[nodes]
    known, member = np.unique(shapes[shapes != NONE], return_inverse=True)
    own = nodes[shapes != NONE]
    time = np.bincount(member, data.weights.host_ns[own], len(known))
    count = np.bincount(member, data.weights.calls[own], len(known))
    for i in np.argsort(-time, kind="stable")[:MOST_PARTS].tolist():
        found.shapes.add(name=data.text(int(known[i])), count=count[i], us=time[i] / NS_PER_US)
    found.more_shapes = max(0, len(known) - MOST_PARTS)


def _add_neighbors(found: pb.CallDetails, data: CallData, nodes: Int64) -> None:
    parent = data.array("call_parent").astype(np.int64)
    inside = np.zeros(len(parent) + 1, np.bool_)  # one more, so that NONE is not inside
    inside[nodes] = True
    called = nodes[parent[nodes] != NONE]
    callees = np.flatnonzero(inside[parent] & (data.weights.calls > 0))
    callers, found.more_callers = _by_name(data, parent[called], called)
    found.callers.extend(callers)
    parts, found.more_callees = _by_name(data, callees, callees)
    found.callees.extend(parts)


def _by_name(data: CallData, named: Int64, calls: Int64) -> tuple[list[pb.CallPart], int]:
    """Return the calls of `calls` by the names of the nodes `named`, those with most host time first, and
    how many names there are beyond."""
    is_thread = data.array("call_category")[named] == Category.OTHER
    name = data.array("call_name").astype(np.int64)[named] * 2 + is_thread
    known, first, member = np.unique(name, return_index=True, return_inverse=True)
    time = np.bincount(member, data.weights.host_ns[calls], len(known))
    count = np.bincount(member, data.weights.calls[calls], len(known))
    parts = [
        pb.CallPart(name=data.node_name(int(named[first[i]])), count=count[i], us=time[i] / NS_PER_US)
        for i in np.argsort(-time, kind="stable")[:MOST_PARTS].tolist()
    ]
    return parts, max(0, len(known) - MOST_PARTS)


def _add_longest(found: pb.CallDetails, data: CallData, row: _Row, *, kernels: bool) -> None:
    kind = "run" if kernels else "span"
    chosen = row.cells if kernels else row.nodes
    inside, ns = data.overlaps(kind, data.weights.span)
    of = data.array("run_cell" if kernels else "span_node")[inside]
    own = np.flatnonzero(chosen[of])
    longest = inside[own[heaviest(ns[own])]]
    devices = data.array("cell_device")[data.array("run_cell")[longest]] if kernels else longest * 0 + NONE
    for (start_us, end_us), device in zip(data.times_us(kind, longest), devices.tolist(), strict=True):
        found.longest.add(start_us=start_us, end_us=end_us, device=device)
