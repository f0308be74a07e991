"""Matrix products by the shapes of their inputs, where shapes were recorded."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.core.steps import Window
from tb_gpudiag.trace.events import NONE, Int64
from tb_gpudiag.trace.vocabulary.operators import LINEAR

# No tensor has a longer side; what a hostile trace says beyond that is no number to reckon with.
_LARGEST = 2**40


def time_by_shapes(host: Host, launch: Int64, duration_ns: Int64) -> list[tuple[str, int]]:
    """(shapes of the inputs as JSON, ns), most time first. launch: shape (k,), the host call that launched
    each kernel, or NONE; duration_ns: shape (k,), the kernels'. Those of unknown shapes are left out."""
    events = host.events
    known = launch != NONE
    operator = host.operator[launch[known]]
    shape = np.where(operator == NONE, NONE, events.shapes[operator])
    inside = shape != NONE
    weight = np.bincount(
        shape[inside], weights=duration_ns[known][inside], minlength=len(events.input_shapes)
    )
    order = np.argsort(-weight, kind="stable")
    return [(events.input_shapes[i], int(weight[i])) for i in order if weight[i]]


def batch_of_one(host: Host, window: Window, least: int) -> bool:
    """Whether every linear layer that runs in the window, at least so many calls, gets an input whose first
    size is 1: then a batch is one item."""
    events = host.events
    known = events.shapes != NONE
    known &= (events.start_ns >= window.start_ns) & (events.start_ns < window.end_ns)
    calls = np.flatnonzero(known)
    calls = calls[match(events, LINEAR)[calls]]
    shapes = {events.input_shapes[i] for i in np.unique(events.shapes[calls])}
    return len(calls) >= least and all(
        len(inputs := matrices(shape)) > 0 and inputs[0][0] == 1 for shape in shapes
    )


def matrices(shapes: str) -> list[list[int]]:
    """The inputs with two dimensions or more; none of what is no list of shapes."""
    try:
        inputs = json.loads(shapes)
    except (ValueError, RecursionError):
        return []
    return [dims for dims in inputs if _is_matrix(dims)] if isinstance(inputs, list) else []


def _is_matrix(dims: Any) -> bool:
    sizes = isinstance(dims, list) and all(type(d) is int and 0 <= d < _LARGEST for d in dims)
    return sizes and len(dims) >= 2
