"""What operators were given: lists that the trace has as JSON text. A hostile trace may have anything."""

from __future__ import annotations

import json
import math
from typing import Any, TypeGuard

MOST_DIMENSIONS = 16
"""Tensors have fewer. Longer lists come from a hostile trace."""

LARGEST = 2**40
"""No tensor has a longer dimension. Larger numbers would overflow."""

MOST_ELEMENTS = 2**60
"""Of a tensor that fits into a computer."""


def input_list(text: str) -> list[Any]:
    """Return the list that this text is in JSON; an empty one for anything else."""
    try:
        found = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def tensor_shapes(text: str) -> list[list[int]]:
    """Return the shapes of all tensors among the inputs, those in lists included."""
    found = []
    for one in input_list(text):
        nested = one if isinstance(one, list) and any(isinstance(part, list) for part in one) else [one]
        found += [shape for shape in nested if is_shape(shape) and shape]
    return found


def matrices(text: str) -> list[list[int]]:
    """Return the shapes of the inputs with two dimensions or more."""
    return [dims for dims in input_list(text) if is_shape(dims) and len(dims) >= 2]


def is_shape(dims: Any) -> TypeGuard[list[int]]:
    """Return whether this is a list of sizes, or of strides, that a tensor may have."""
    if not isinstance(dims, list) or len(dims) > MOST_DIMENSIONS:
        return False
    return all(type(size) is int and 0 <= size < LARGEST for size in dims)


def is_plausible(dims: Any) -> bool:
    """Return whether this is not a tensor, or one that fits into a computer."""
    return not isinstance(dims, list) or (is_shape(dims) and math.prod(dims) < MOST_ELEMENTS)
