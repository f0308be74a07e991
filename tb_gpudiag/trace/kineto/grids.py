"""Blocks of kernels whose trace does not say how many run on each multiprocessor: from their grids."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tb_gpudiag.arrays import Bool, Float32, Int64, UInt8
from tb_gpudiag.trace.events import are_among
from tb_gpudiag.trace.kineto import kineto
from tb_gpudiag.trace.kineto.fields import Fields
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category

_SIDES = (("grid", "block"), ("launch_grid", "launch_block"))
_LONGEST_TEXT = 100
_LARGEST = 2**40


def blocks_of(
    fields: Fields, rows: Int64, category: UInt8, name: pa.DictionaryArray, blocks_per_sm: Float32
) -> Float32:
    """Return the blocks of each event's grid, shape (n,): of kernels without `blocks_per_sm`, and of ROCm's
    launch calls. NaN elsewhere, and where the trace does not say.

    The arguments after `rows` have the shape of these, (n,).
    """
    blocks = np.full(len(rows), np.nan, np.float32)
    names = name.dictionary.to_pylist()
    call = np.array([kineto.is_hip_launch(n) for n in names] or [False], np.bool_)
    code = name.indices.to_numpy()
    chosen = (category == Category.KERNEL) & np.isnan(blocks_per_sm)
    if len(rows):
        chosen |= are_among(category, *CALL_CATEGORIES) & call[code]
    own = np.flatnonzero(chosen)
    if not len(own):
        return blocks
    threads = np.array([kineto.grid_in_threads(n) for n in names], np.bool_)[code[own]]
    for grid, block in _SIDES:
        blocks[own] = np.where(
            np.isnan(blocks[own]),
            _blocks(fields.texts(grid, rows[own]), fields.texts(block, rows[own]), threads),
            blocks[own],
        )
    return blocks


def _blocks(grid: pa.DictionaryArray, block: pa.DictionaryArray, in_threads: Bool) -> Float32:
    """Blocks of each pair; NaN where one of them is not three sizes above 0."""
    grids, blocks = _sizes(grid), _sizes(block)
    per_side = np.where(in_threads[:, None], np.ceil(grids / blocks), grids)
    return np.asarray(per_side.prod(axis=1) * (blocks.prod(axis=1) > 0), np.float32)


def _sizes(texts: pa.DictionaryArray) -> npt.NDArray[np.float64]:
    """Parse texts such as `[64, 1, 1]` to floats, shape (n, 3); NaN for others."""
    table = np.array([_three(text) for text in texts.dictionary.to_pylist()] or [[np.nan] * 3])
    found: npt.NDArray[np.float64] = table[texts.indices.to_numpy()]
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
