"""The tables of kernels and operators, and the columns of parts of the time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.digest.digest import KERNELS, MODULES, OPERATORS, PATH_SEPARATOR, REST, WORK
from tb_gpudiag.facts.core.causes import Cause, CauseSpans, time_by_cause
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, Window, distinct
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.places import Paths
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.kernels.kernels import Kernels, by_module
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category
from tb_gpudiag.vocabulary.shaped_operators import has_cost
from tb_gpudiag.wording.format import one_line

Columns = dict[str, Any]
"""Columns of a table by name."""


def part_columns(device: DeviceFacts | None, main_thread: CauseSpans, start: Int64, end: Int64) -> Columns:
    """Return the columns of parts of the stretches [start, end), shape (k,) each. The GPU's are 0 without a
    device."""
    nothing = np.zeros((len(start), len(Cause)), np.int64)
    of_gpu = {f"{name}_ns": nothing[:, 0] for name in WORK} | {"idle_ns": lists(nothing)}
    if device is not None:
        account = device.time.account([""] * len(start), start, end)
        of_gpu = {f"{name}_ns": getattr(account, f"{name}_ns") for name in WORK}
        of_gpu["idle_ns"] = lists(account.idle_ns)
    on_host = Intervals(main_thread.start_ns, main_thread.end_ns)
    return {**of_gpu, "host_ns": lists(time_by_cause(on_host, main_thread.cause, start, end))}


def lists(values: Int64) -> pa.ListArray:
    """Return rows of numbers as a column of lists."""
    rows, width = values.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.reshape(-1)))


def table(schema: pa.Schema, columns: Columns) -> pa.Table:
    """Make a table of columns: arrays or lists by name."""
    arrays = []
    for field in schema:
        values = columns[field.name]
        arrays.append(
            values.cast(field.type) if isinstance(values, pa.Array) else pa.array(values, field.type)
        )
    return pa.Table.from_arrays(arrays, schema=schema)


# Models with thousands of layers have this many distinct kernels by path. More take little time.
MOST: Final = 2_000
_LONGEST_NAME: Final = 300


def module_table(device: DeviceFacts | None) -> pa.Table:
    """Return MODULES of a device; empty without one."""
    rows = by_module(device.naming[1], device.naming[0])[:MOST] if device is not None else []
    columns = {
        "module": [one_line(row.module, _LONGEST_NAME) for row in rows],
        "count": [row.kernels for row in rows],
        "time_ns": [row.time_ns for row in rows],
    }
    return table(MODULES, columns)


def kernel_table(kernels: Kernels, host: Host, paths: Paths, since_ns: int) -> pa.Table:
    """Return KERNELS of one device, of what starts at `since_ns` or later."""
    events = host.events
    own = np.flatnonzero(kernels.start_ns >= since_ns)
    event, operator = kernels.event[own], kernels.operators(host)[own]
    origin = np.where(operator == NONE, kernels.origin[own], operator)
    path = np.where(origin == NONE, NONE, paths.of_event[origin])
    shapes = np.where(operator == NONE, NONE, _cost_shapes(events)[operator]).astype(np.int64)
    first, member, count = _groups(events.name[event].astype(np.int64), path, shapes)
    time = np.bincount(member, weights=kernels.duration_ns[own], minlength=len(first)).astype(np.int64)
    order = np.argsort(-time, kind="stable")
    shown, rest = order[:MOST], order[MOST:]
    at = first[shown]
    columns = {
        "name": [one_line(events.names[i], _LONGEST_NAME) for i in events.name[event[at]]],
        "family": [Family(family).label for family in kernels.family[own[at]].tolist()],
        "operator": _texts(host, operator[at]),
        "path": [one_line(paths.text(number, PATH_SEPARATOR), 600) for number in path[at].tolist()],
        "shapes": ["" if code == NONE else events.input_shapes[code] for code in shapes[at].tolist()],
        "count": count[shown].tolist(),
        "time_ns": time[shown].tolist(),
    }
    if len(rest):
        _add_rest(columns, count=int(count[rest].sum()), time_ns=int(time[rest].sum()), family="other")
    return table(KERNELS, columns)


def cpu_kernel_table(host: Host, window: Window, paths: Paths) -> pa.Table:
    """Return KERNELS of a CPU job: its operators with known input sizes, in self time."""
    events = host.events
    self_ns, inside = _self_time(host, window)
    cost_shapes = _cost_shapes(events)
    own = np.flatnonzero(inside & (cost_shapes != NONE))
    path, shapes = paths.of_event[own], cost_shapes[own].astype(np.int64)
    first, member, count = _groups(events.name[own].astype(np.int64), path, shapes)
    time = np.bincount(member, weights=np.maximum(self_ns[own], 0), minlength=len(first)).astype(np.int64)
    shown = np.argsort(-time, kind="stable")[:MOST]
    at = first[shown]
    names = _texts(host, own[at])
    return table(
        KERNELS,
        {
            "name": names,
            "family": [Family.OTHER.label] * len(at),
            "operator": names,
            "path": [one_line(paths.text(number, PATH_SEPARATOR), 600) for number in path[at].tolist()],
            "shapes": [events.input_shapes[code] for code in shapes[at].tolist()],
            "count": count[shown],
            "time_ns": time[shown],
        },
    )


def costly_operators(host: Host, thread: int) -> Int64:
    """Find the operators of a thread whose shapes determine their cost, in order of time."""
    events = host.events
    own = np.flatnonzero((_cost_shapes(events) != NONE) & (events.thread == thread))
    return own[np.argsort(events.start_ns[own], kind="stable")]


def _cost_shapes(events: Events) -> Int64:
    """Return `events.shapes` of the operators whose shapes determine their cost, else NONE. Shape (n,)."""
    counts = np.array([has_cost(name) for name in events.names] or [False], np.bool_)
    return np.where(counts[events.name], events.shapes, NONE).astype(np.int64)


def operator_table(host: Host, work: Work, window: Window, paths: Paths) -> pa.Table:
    """Return OPERATORS of all threads in the window. A row without a name has launches outside of them."""
    events = host.events
    self_ns, inside = _self_time(host, window)
    launches, others = _launches(host, work, window)
    own = np.flatnonzero(inside)
    path = paths.of_event[own]
    first, member, count = _groups(events.name[own].astype(np.int64), path)

    def total(values: Int64) -> Int64:
        return np.bincount(member, weights=values[own], minlength=len(first)).astype(np.int64)

    host_ns = total(np.maximum(self_ns, 0))
    launched = total(launches)
    order = np.argsort(-host_ns, kind="stable")
    shown, rest = order[:MOST], order[MOST:]
    at = first[shown]
    columns = {
        "operator": _texts(host, own[at]),
        "path": [one_line(paths.text(number, PATH_SEPARATOR), 600) for number in path[at].tolist()],
        "count": count[shown].tolist(),
        "host_ns": host_ns[shown].tolist(),
        "launches": launched[shown].tolist(),
    }
    if len(others):
        other_ns = int(events.duration_ns[others].sum())
        for name, value in zip(columns, ("", "", 0, other_ns, len(others)), strict=True):
            columns[name].append(value)
    if len(rest):
        _add_rest(
            columns,
            count=int(count[rest].sum()),
            host_ns=int(host_ns[rest].sum()),
            launches=int(launched[rest].sum()),
        )
    return table(OPERATORS, columns)


def _self_time(host: Host, window: Window) -> tuple[Int64, Bool]:
    """Return the self time of each operator, and a mask of the operators that begin in the window. Shape (n,)
    each."""
    events = host.events
    is_operator = (events.category == Category.CPU_OP) & (host.tree.depth >= 0)
    self_ns = np.where(is_operator, events.duration_ns, 0)
    parent = np.where(host.tree.parent == NONE, NONE, host.operator[host.tree.parent])
    inner = np.flatnonzero(is_operator & (parent != NONE))
    np.subtract.at(self_ns, parent[inner], events.duration_ns[inner])
    inside: Bool = is_operator & window.contains(events.start_ns)
    return self_ns, inside


def _launches(host: Host, work: Work, window: Window) -> tuple[Int64, Int64]:
    """Return how many launch calls each operator made, shape (n,), and the launch calls in the window that no
    operator made."""
    events = host.events
    calls = distinct(work.launch[work.launch != NONE])
    calls = calls[np.isin(events.category[calls], np.array(CALL_CATEGORIES, np.uint8))]
    operator = host.operator[calls]
    alone = calls[operator == NONE]
    starts = events.start_ns[alone]
    others = alone[window.contains(starts)]
    return np.bincount(operator[operator != NONE], minlength=len(events)), others


def _groups(*columns: Int64) -> tuple[Int64, Int64, Int64]:
    """Group equal rows: the first row of each group, the group of each row, and how many rows it has."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        # Renumbered each time, so that the key never exceeds rows x values.
        _, numbers = np.unique(column, return_inverse=True)
        _, key = np.unique(key * (int(numbers.max(initial=0)) + 1) + numbers, return_inverse=True)
    _, first, member, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    return first.astype(np.int64), member.astype(np.int64), count.astype(np.int64)


def _texts(host: Host, event: Int64) -> list[str]:
    names = host.events.names
    codes = np.where(event == NONE, NONE, host.events.name[event]).tolist()
    return ["" if code == NONE else one_line(names[code], _LONGEST_NAME) for code in codes]


def _add_rest(columns: dict[str, list[object]], **values: object) -> None:
    """Add a row that sums what the table has no room for."""
    for name, column in columns.items():
        text = not isinstance(column[0], int)
        column.append(values.get(name, REST if name in ("name", "operator") else "" if text else 0))
