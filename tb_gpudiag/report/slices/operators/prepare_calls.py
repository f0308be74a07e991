"""Calls and GPU work of a trace as arrays that can be kept on disk, and the roofline of them.

    call_…    the nodes of the call tree in depth-first order (facts/operators/call_tree.py)
    flame_…   the same tree without input shapes and forward operators
    span_…    every call: when it ran, and its node
    cell_…    GPU work by name, node and device
    run_…     every piece of GPU work: when it ran, and its cell

Times of spans and runs are whole units from the recording's start: see TimeUnit. An index is NONE if there is
none. Names are indices into the timeline's table of strings, other texts into `call_text`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Int64, summed
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.peaks import Peaks
from tb_gpudiag.facts.operators.call_tree import CallTree
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.prepared import NS_PER_US, Prepared, TextTable, pack_meta, read_meta
from tb_gpudiag.report.slices.timeline_lanes import name_index, thread_title
from tb_gpudiag.vocabulary.kernel_families import Arithmetic, Family
from tb_gpudiag.vocabulary.kernel_names import read_names
from tb_gpudiag.vocabulary.recorded import Category

MOST_POINTS = 500
"""Operators with the most time. Models have some tens to hundreds."""


def prepare_roofline(facts: Facts) -> tuple[dict[str, npt.NDArray[Any]], Int64]:
    """Return the arrays, and the index of each piece of GPU work's operator in them, or NONE."""
    work = facts.work
    of_work = np.full(len(work), NONE, np.int64)
    device = facts.device
    if device is None:
        none = np.zeros(0)
        empty = pack_meta({"points": []})
        return {
            "roofline_meta": empty,
            "rate_operations": none,
            "rate_bytes": none,
            "rate_least": none,
        }, of_work
    found, kernels = device.roofline, device.kernels
    of_work[np.searchsorted(work.event, kernels.event)] = found.operator
    family = _families(found.operator, kernels.family, kernels.duration_ns, len(found.operators))
    meta: dict[str, Any] = {
        "device": device.id,
        "device_name": device.name,
        "peaks": _peaks(found.peaks),
        "bandwidth": found.peaks.bandwidth if found.peaks else 0,
        "assumed": found.peaks.assumed if found.peaks else "",
        "left_out": max(0, len(found.operators) - MOST_POINTS),
        "points": [
            [
                item.operator[:300],
                item.shapes,
                item.number,
                Family(of).label,
                item.calls,
                item.time_ns,
                float(item.operations),
                float(item.bytes),
                item.reached,
            ]
            for item, of in zip(found.operators[:MOST_POINTS], family.tolist(), strict=False)
        ],
    }
    time = np.array([item.time_ns for item in found.operators], np.float64)
    arrays: dict[str, npt.NDArray[Any]] = {
        "roofline_meta": pack_meta(meta),
        # For each ns of the operator's kernels.
        "rate_operations": np.array([float(item.operations) for item in found.operators]) / time,
        "rate_bytes": np.array([float(item.bytes) for item in found.operators]) / time,
        "rate_least": np.array([item.least_ns for item in found.operators]) / time,
    }
    return arrays, of_work


def _families(
    operator: Int64, family: npt.NDArray[np.uint8], duration_ns: Int64, number: int
) -> npt.NDArray[np.intp]:
    """Return the family that takes most of each operator's time."""
    time = np.zeros((number, len(Family)))
    known = operator != NONE
    np.add.at(time, (operator[known], family[known]), duration_ns[known])
    return time.argmax(axis=1) if number else np.zeros(0, np.intp)


def _peaks(peaks: Peaks | None) -> list[tuple[str, float]]:
    """Return the peaks of number formats that the device has, the highest first."""
    if peaks is None:
        return []
    named = {
        "FP8": peaks.fp8,
        "FP16 and BF16": peaks.half,
        "TF32": peaks.tf32,
        "FP32": peaks.fp32,
        "FP64": peaks.fp64,
    }
    return sorted(((name, rate) for name, rate in named.items() if rate), key=lambda pair: -pair[1])


def slice_roofline(prepared: Prepared) -> pb.RooflinePlot:
    """Return the roofline plot of the trace; without points if no input shapes are known."""
    meta = read_meta(prepared, "roofline_meta")
    plot = pb.RooflinePlot()
    if not meta["points"]:
        return plot
    plot.device, plot.device_name = meta["device"], meta["device_name"]
    plot.assumed, plot.bandwidth, plot.more_points = meta["assumed"], meta["bandwidth"], meta["left_out"]
    for name, rate in meta["peaks"]:
        plot.peaks.add(name=name, teraflops=rate)
    for operator, shapes, number, family, calls, time_ns, operations, moved, reached in meta["points"]:
        plot.points.add(
            operator=operator,
            shapes=shapes,
            number=number,
            family=family,
            calls=calls,
            us=time_ns / NS_PER_US,
            operations=operations,
            bytes=moved,
            reached=reached,
        )
    return plot


_UNIT_BITS = 32

# Characters of a call stack in an old trace.
_LONGEST_STACK = 8000

UInt32 = npt.NDArray[np.uint32]


class TimeUnit(NamedTuple):
    """Times as 32 bits: (ns since the recording's start) >> shift. The shift is 0 up to 4.29 s."""

    start_ns: int
    shift: int

    @classmethod
    def of(cls, start_ns: int, end_ns: int) -> TimeUnit:
        return cls(start_ns, max(0, max(0, end_ns - start_ns).bit_length() - _UNIT_BITS))

    def units(self, time_ns: Int64) -> UInt32:
        """Return times in units, cut to those that fit."""
        since = np.clip(time_ns - self.start_ns, 0, None) >> self.shift
        return np.minimum(since, (1 << _UNIT_BITS) - 1).astype(np.uint32)


def prepare_calls(facts: Facts) -> dict[str, npt.NDArray[Any]]:
    """Return everything that the tables of operators and the call tree need, as plain arrays by name."""
    tree, recording = facts.call_tree, facts.recording
    unit = TimeUnit.of(recording.start_ns, recording.end_ns)
    texts = TextTable()
    roofline, work_rate = prepare_roofline(facts)
    arrays = {
        **_nodes(tree, facts, texts),
        **_flames(tree),
        "span_start": unit.units(tree.calls.start_ns),
        "span_end": unit.units(tree.calls.end_ns),
        "span_node": tree.node.astype(np.int32),
        **_cells(facts, tree, unit, work_rate),
        **roofline,
    }
    arrays["call_text"], arrays["call_text_first"] = texts.arrays()
    arrays["call_meta"] = pack_meta(
        {
            "start_ns": recording.start_ns,
            "end_ns": recording.end_ns,
            "shift": unit.shift,
            "has_shapes": bool((arrays["call_shapes"] != NONE).any()),
            "has_stacks": bool((arrays["call_frame"] != NONE).any() or (arrays["call_stack"] != NONE).any()),
            "has_modules": bool((arrays["call_module"] != NONE).any()),
        }
    )
    return arrays


def _nodes(tree: CallTree, facts: Facts, texts: TextTable) -> dict[str, npt.NDArray[Any]]:
    events = facts.events
    number = len(tree.tree)
    duration = tree.calls.end_ns - tree.calls.start_ns
    linked = tree.work_node != NONE
    ran = tree.work_node[linked]
    operator = np.isin(tree.category, np.array([Category.CPU_OP, Category.USER_ANNOTATION], np.uint8))
    python = tree.category == Category.PYTHON_FUNCTION
    name = np.where(tree.event == NONE, NONE, name_index(events.name[tree.event]))
    name[tree.thread_node] = [
        texts.add(thread_title(events, thread, facts.main_thread)) for thread in tree.threads.tolist()
    ]
    return {
        "call_parent": tree.tree.parent.astype(np.int32),
        "call_last": tree.tree.last.astype(np.int32),
        "call_category": tree.category.astype(np.uint8),
        "call_name": name.astype(np.int32),
        "call_shapes": _texts_of(events.shapes, events.input_shapes, tree, texts),
        "call_stack": _texts_of(events.call_stack, events.call_stacks, tree, texts, _LONGEST_STACK),
        "call_forward": tree.forward.astype(np.int32),
        "call_module": tree.modules().astype(np.int32),
        "call_frame": tree.frames().astype(np.int32),
        "call_code": tree.code_stacks().astype(np.int32),
        "call_caller": tree.callers().astype(np.int32),
        "call_owner": tree.nearest(operator).astype(np.int32),
        "call_python": tree.nearest(python).astype(np.int32),
        "call_count": np.bincount(tree.node, minlength=number),
        "call_ns": summed(tree.node, duration, number),
        "call_run_ns": summed(ran, events.duration_ns[facts.work.event[linked]], number),
    }


def _texts_of(
    column: npt.NDArray[np.int32], known: list[str], tree: CallTree, texts: TextTable, longest: int = 400
) -> npt.NDArray[np.int32]:
    """Return the text of each node's calls as an index into `texts`, or NONE."""
    code = np.where(tree.event == NONE, NONE, column[tree.event]) if len(column) else tree.event
    used = np.unique(code[code != NONE])
    place = np.full(len(known) + 1, NONE, np.int32)
    place[used] = [texts.add(known[i], longest) for i in used.tolist()]
    return place[code]


def _flames(tree: CallTree) -> dict[str, npt.NDArray[Any]]:
    merged, place = tree.merged_shapes()
    return {
        "call_flame": place.astype(np.int32),
        "flame_parent": merged.parent.astype(np.int32),
        "flame_last": merged.last.astype(np.int32),
        "flame_depth": merged.depth.astype(np.int32),
        "flame_node": merged.first.astype(np.int32),
    }


def _cells(facts: Facts, tree: CallTree, unit: TimeUnit, rate: Int64) -> dict[str, npt.NDArray[Any]]:
    """Group GPU work. rate: index into the roofline's operators, or NONE, shape of the work."""
    events, event = facts.events, facts.work.event
    duration = events.duration_ns[event]
    keys = np.stack([events.name[event], events.category[event], events.device[event], tree.work_node, rate])
    found, cell = np.unique(keys.astype(np.int64), axis=1, return_inverse=True)
    cell = cell.reshape(-1)
    number = found.shape[1]
    read = read_names([events.names[i] for i in found[0].tolist()])
    kernel = found[1] == Category.KERNEL
    family = np.array([r.family for r in read], np.uint8)
    arithmetic = np.array([r.arithmetic for r in read], np.uint8)
    blocks = np.nan_to_num(events.blocks_per_sm[event]).astype(np.float64)
    return {
        "cell_name": name_index(found[0]).astype(np.int32),
        "cell_device": found[2].astype(np.int32),
        "cell_node": found[3].astype(np.int32),
        "cell_rate": found[4].astype(np.int32),
        "cell_family": np.where(kernel, family, Family.COPY).astype(np.uint8),
        "cell_arithmetic": np.where(kernel, arithmetic, Arithmetic.UNKNOWN).astype(np.uint8),
        "cell_count": np.bincount(cell, minlength=number),
        "cell_ns": summed(cell, duration, number),
        "cell_least_ns": _extreme(np.minimum, cell, duration, number),
        "cell_most_ns": _extreme(np.maximum, cell, duration, number),
        # Weighted by time.
        "cell_blocks": np.bincount(cell, blocks * duration, number).astype(np.float32),
        "run_start": unit.units(events.start_ns[event]),
        "run_end": unit.units(events.end_ns[event]),
        "run_cell": cell.astype(np.int32),
    }


def _extreme(choose: np.ufunc, group: Int64, value_ns: Int64, number: int) -> Int64:
    found = np.full(number, NONE, np.int64)
    order = np.argsort(group, kind="stable")
    if len(order):
        first = np.searchsorted(group[order], np.arange(number))
        found = choose.reduceat(value_ns[order], first)
    return found
