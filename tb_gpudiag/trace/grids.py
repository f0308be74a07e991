"""Blocks of kernels whose trace does not say how many run on each multiprocessor: from their grids."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.trace import kineto
from tb_gpudiag.trace.events import CALL_CATEGORIES, Bool, Category, Float32, Int64, UInt8

Seldom = Callable[[str], dict[str, pa.Array]]
"""Reads a group of the columns that few chunks need (see kineto.SELDOM)."""

_SIDES = (("grid", "block"), ("launch_grid", "launch_block"))
_LONGEST_TEXT = 100
_LARGEST = 2**40


def blocks_of(
    rows: Int64, category: UInt8, name: pa.DictionaryArray, blocks_per_sm: Float32, seldom: Seldom
) -> Float32:
    """Return the blocks of each event's grid, shape (n,): of kernels without `blocks_per_sm`, and of ROCm's
    launch calls. NaN elsewhere, and where the trace does not say.

    rows: the events' places in the columns of `seldom`. The other arguments have shape (n,).
    """
    blocks = np.full(len(rows), np.nan, np.float32)
    names = name.dictionary.to_pylist()
    call = np.array([kineto.is_hip_launch(n) for n in names] or [False], np.bool_)
    code = name.indices.to_numpy()
    chosen = (category == Category.KERNEL) & np.isnan(blocks_per_sm)
    if len(rows):
        chosen |= np.isin(category, np.array(CALL_CATEGORIES, np.uint8)) & call[code]
    own = np.flatnonzero(chosen)
    found = seldom("grids") if len(own) else {}
    if not found:
        return blocks
    threads = np.array([kineto.grid_in_threads(n) for n in names], np.bool_)[code[own]]
    take = pa.array(rows[own])
    for grid, block in _SIDES:
        blocks[own] = np.where(
            np.isnan(blocks[own]),
            _blocks(found[grid].take(take), found[block].take(take), threads),
            blocks[own],
        )
    return blocks


def _blocks(grid: pa.Array, block: pa.Array, in_threads: Bool) -> Float32:
    """Blocks of each pair; NaN where one of them is not three sizes above 0."""
    grids, blocks = _sizes(grid), _sizes(block)
    per_side = np.where(in_threads[:, None], np.ceil(grids / blocks), grids)
    return np.asarray(per_side.prod(axis=1) * (blocks.prod(axis=1) > 0), np.float32)


def _sizes(texts: pa.Array) -> npt.NDArray[np.float64]:
    """Parse texts such as `[64, 1, 1]` to floats, shape (n, 3); NaN for others."""
    encoded = pc.fill_null(texts, "").dictionary_encode()
    table = np.array([_three(text) for text in encoded.dictionary.to_pylist()] or [[np.nan] * 3])
    found: npt.NDArray[np.float64] = table[encoded.indices.to_numpy()]
    return found


def _three(text: str) -> list[float]:
    unknown = [np.nan] * 3
    if len(text) > _LONGEST_TEXT:
        return unknown
    try:
        sizes = json.loads(text)
    except (ValueError, RecursionError):
        return unknown
    fits = (
        isinstance(sizes, list)
        and len(sizes) == 3
        and all(type(n) is int and 0 < n < _LARGEST for n in sizes)
    )
    return [float(n) for n in sizes] if fits else unknown
