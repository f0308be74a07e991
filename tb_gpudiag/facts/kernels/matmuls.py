"""Matmuls by the shapes of their inputs, where shapes were recorded."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.matching import match_some
from tb_gpudiag.vocabulary.operators import LINEAR, MATMUL_FACTORS

# No tensor has a longer dimension. Larger numbers are from a hostile trace, and would overflow.
_LARGEST = 2**40


def time_by_shapes(host: Host, launch: Int64, duration_ns: Int64) -> list[tuple[str, int]]:
    """Add up kernel time by the matmul's input shapes: (shapes as JSON, ns), most time first, without kernels
    of other operators or unknown shapes.

    launch: the host call that launched each kernel, or NONE, shape (k,).
    duration_ns: the kernels' durations, shape (k,).
    """
    events = host.events
    known = launch != NONE
    operator = host.operator[launch[known]]
    shape = np.where(operator == NONE, NONE, events.shapes[operator])
    matmul = np.array([name in MATMUL_FACTORS for name in events.names] or [False], np.bool_)
    inside = (shape != NONE) & matmul[events.name[operator]]
    weight = np.bincount(
        shape[inside], weights=duration_ns[known][inside], minlength=len(events.input_shapes)
    )
    order = np.argsort(-weight, kind="stable")
    return [(events.input_shapes[i], int(weight[i])) for i in order if weight[i]]


def batch_of_one(host: Host, window: Window, least: int) -> bool:
    """Return whether every linear layer that runs in the window gets an input whose first size is 1: then a
    batch is one item. False with fewer than `least` calls."""
    events = host.events
    known = events.shapes != NONE
    known &= (events.start_ns >= window.start_ns) & (events.start_ns < window.end_ns)
    calls = np.flatnonzero(known)
    calls = calls[match_some(events, LINEAR, calls)]
    shapes = {events.input_shapes[i] for i in np.unique(events.shapes[calls])}
    return len(calls) >= least and all(
        len(inputs := matrices(shape)) > 0 and inputs[0][0] == 1 for shape in shapes
    )


def matrices(shapes: str) -> list[list[int]]:
    """Parse the inputs with two dimensions or more; return none if the text is not a list of shapes."""
    try:
        inputs = json.loads(shapes)
    except (ValueError, RecursionError):
        return []
    if not isinstance(inputs, list):
        return []
    return [dims for dims in inputs if is_shape(dims) and len(dims) >= 2]


def is_shape(dims: Any) -> bool:
    """Return whether this is a list of sizes that a tensor may have."""
    return isinstance(dims, list) and all(type(d) is int and 0 <= d < _LARGEST for d in dims)
