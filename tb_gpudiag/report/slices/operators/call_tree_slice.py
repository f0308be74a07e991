"""The call tree below a node, for a flame graph: what is too small to see is left out and counted."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Int64, places_of, summed
from tb_gpudiag.errors import UsageError
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.operators.call_weights import CallData
from tb_gpudiag.report.slices.prepared import NS_PER_US, Prepared, heaviest_nodes

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
