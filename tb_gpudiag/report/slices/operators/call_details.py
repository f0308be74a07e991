"""One row of a table of operators or kernels in detail, and the call tree below a node."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, places_of, summed
from tb_gpudiag.errors import UsageError
from tb_gpudiag.facts.core.intervals import heaviest
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.operators.call_groups import (
    CallData,
    cell_keys,
    cell_operators,
    module_keys,
    node_keys,
    stack_of,
)
from tb_gpudiag.report.slices.prepared import NS_PER_US, Prepared, heaviest_nodes
from tb_gpudiag.vocabulary.marks import module_name
from tb_gpudiag.vocabulary.recorded import Category

MOST_NODES = 4_000
"""More than a screen shows: it has some thousand pixels a row, and most rows have few nodes."""

MOST_DEPTH = 400

SMALLEST_SHARE = 0.0005
"""Of the width: under one pixel on a screen of 1,920."""


def slice_call_tree(
    prepared: Prepared, weight: str, root: float | None, start_us: float | None, end_us: float | None
) -> pb.CallTree:
    """Return the tree below the node `root`, None for all threads. Host time, or time of launched GPU
    work. Raises UsageError: there is no such node."""
    data = CallData(prepared, start_us, end_us)
    parent = data.array("flame_parent").astype(np.int64)
    last, depth = data.array("flame_last"), data.array("flame_depth")
    if root is not None and not 0 <= root < len(parent):
        raise UsageError("The call tree has no such node.", where="root")
    own, whole, calls = _weights(data, weight)
    low, high = (0, len(parent)) if root is None else (int(root), int(last[int(root)]))
    top = depth[low] if len(parent) else 0
    some = np.arange(low, high)
    total = int(whole[low:high][depth[low:high] == top].sum())
    big = whole[some] >= max(1, int(total * SMALLEST_SHARE))
    big |= (depth[some] == top) & (whole[some] > 0)  # threads are always shown
    big &= depth[some] - top < MOST_DEPTH
    kept = heaviest_nodes(some[big], whole, MOST_NODES)
    place = places_of(kept, len(parent))
    above = np.where(kept == low, NONE, place[parent[kept]]) if root is not None else place[parent[kept]]
    left_out, left_out_ns = _left_out(parent, whole, some, place, len(kept))
    node = data.array("flame_node")[kept]
    texts = [data.node_name(int(i)) for i in node]
    names = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    return pb.CallTree(
        weight=weight,
        total_us=total / NS_PER_US,
        names=list(names),
        node=kept.tolist(),
        parent=above.tolist(),
        name=[names[text] for text in texts],
        kind=data.array("call_category")[node].tolist(),
        node_us=(whole[kept] / NS_PER_US).tolist(),
        self_us=(own[kept] / NS_PER_US).tolist(),
        calls=calls[kept].tolist(),
        left_out=left_out.tolist(),
        left_out_us=(left_out_ns / NS_PER_US).tolist(),
        path=_path(data, parent, low) if root is not None else [],
    )


def _weights(data: CallData, weight: str) -> tuple[Int64, Int64, Int64]:
    """Return self time, time with what is called, and calls of each node of the flame graph."""
    flame = data.array("call_flame").astype(np.int64)
    parent, last = data.array("flame_parent").astype(np.int64), data.array("flame_last")
    number = len(parent)
    calls = summed(flame, data.weights.calls, number)
    time = summed(flame, data.weights.run_ns if weight == "gpu" else data.weights.host_ns, number)
    if weight == "gpu":
        sums = np.r_[0, np.cumsum(time)]
        return time, sums[last] - sums[:-1], calls
    inner = summed(parent[parent != NONE], time[parent != NONE], number)
    # A thread has the time of its outermost calls.
    threads = parent == NONE
    time[threads] = inner[threads]
    return time - inner, time, calls


def _left_out(parent: Int64, whole: Int64, some: Int64, place: Int64, number: int) -> tuple[Int64, Int64]:
    """Return number and time of the nodes directly below each kept one that are not kept."""
    dropped = some[(place[some] == NONE) & (whole[some] > 0)]
    above = place[parent[dropped]]
    dropped, above = dropped[above != NONE], above[above != NONE]
    time = summed(above, whole[dropped], number)
    return np.bincount(above, minlength=number), time


def _path(data: CallData, parent: Int64, node: int) -> list[pb.CallStep]:
    steps: list[pb.CallStep] = []
    of = data.array("flame_node")
    while node != NONE and len(steps) < MOST_DEPTH:
        call = int(of[node])
        steps.append(
            pb.CallStep(name=data.node_name(call), kind=int(data.array("call_category")[call]), node=node)
        )
        node = int(parent[node])
    return steps[::-1]


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
        # Mask of the cells whose work was launched in the calls of these nodes.
        number = len(data.prepared["call_parent"])
        depth = summed(nodes, 1, number + 1)
        np.add.at(depth, data.array("call_last")[nodes], -1)
        below = np.r_[np.cumsum(depth)[:number] > 0, False]  # one more, so that NONE is not below
        inside = below[data.array("cell_node")] & (data.weights.cell_count > 0)
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
