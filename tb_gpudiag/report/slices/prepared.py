"""Arrays that are prepared once for a trace, kept on disk, and read by every slice. Of a step curve, they
have the extremes of blocks of points, so that any range at any zoom can be cut out.

A value is valid until the next time. Of several points at the same time the last one's value is valid; the
others count among the extremes.

A string table is two of them: all strings in UTF-8, one after another, and where each begins. Like all others
they can be mapped into memory, so only strings that are shown are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import Int64, UInt8
from tb_gpudiag.facts.core.intervals import expand
from tb_gpudiag.report import report_pb2 as pb

# Points per block, and blocks per block of the level above. Larger blocks make slices slower and take less
# memory.
BLOCK = 32

# A range with at most this many points per pixel is shown point by point.
POINTS_PER_PIXEL = 2


Values = npt.NDArray[Any]
"""Whole numbers or floats."""


class Pyramid(NamedTuple):
    """One curve. time_ns (ascending) and value have shape (c,). low and high are the extremes of each block
    of BLOCK points, then of each block of BLOCK such blocks, and so on until one block is left."""

    time_ns: Int64
    value: Values
    low: Values
    high: Values


class CurveSlice(NamedTuple):
    """A range of a curve, shape (p,) each. The last value is valid until the range's end. `exact`: every
    point of the range is there, and low equals high."""

    time_ns: Int64
    low: Values
    high: Values
    exact: bool


def build_pyramid(time_ns: Int64, value: Values) -> Pyramid:
    """Build a curve with its blocks. time_ns, value: shape (c,), ascending in time."""
    low, high = [], []
    least = most = value
    while len(least) > 1:
        first = np.arange(0, len(least), BLOCK)
        least, most = np.minimum.reduceat(least, first), np.maximum.reduceat(most, first)
        low.append(least)
        high.append(most)
    none = np.zeros(0, np.int64)
    return Pyramid(time_ns, value, np.concatenate([none, *low]), np.concatenate([none, *high]))


def slice_curve(curve: Pyramid, start_ns: int, end_ns: int, width: int) -> CurveSlice:
    """Return what [start, end) shows on `width` pixels: every point, or if there are too many the exact
    extremes of each pixel. Before its first point a curve shows nothing."""
    time = curve.time_ns
    if not len(time) or end_ns <= max(start_ns, int(time[0])):
        none = np.zeros(0, np.int64)
        return CurveSlice(none, none, none, True)
    begin = max(start_ns, int(time[0]))
    first, stop = (int(i) for i in np.searchsorted(time, [begin, end_ns]))
    # The point that is valid at the range's start, unless another point is exactly there.
    first -= int(first == len(time) or time[first] > begin)
    if stop - first <= POINTS_PER_PIXEL * width:
        value = curve.value[first:stop]
        return CurveSlice(np.maximum(time[first:stop], begin), value, value, True)
    pixels = min(width, end_ns - begin)
    whole, rest = divmod(end_ns - begin, pixels)
    place = np.arange(pixels + 1, dtype=np.int64)
    edge = begin + place * whole + place * rest // pixels
    at = np.searchsorted(time, edge)
    # If no point is exactly at the edge, the point before it is valid there.
    is_earlier = time[np.minimum(at, len(time) - 1)] != edge
    left, right = (at - is_earlier)[:-1], at[1:]
    low, high = _extremes(curve, left, right)
    changes = np.r_[True, (low[1:] != low[:-1]) | (high[1:] != high[:-1])]
    return CurveSlice(edge[:-1][changes], low[changes], high[changes], False)


def _extremes(curve: Pyramid, left: Int64, right: Int64) -> tuple[Values, Values]:
    """Lowest and highest value of each range left:right of points. No range is empty."""
    low, high = curve.value[left].copy(), curve.value[left].copy()
    level_low, level_high, above = curve.value, curve.value, 0
    while True:
        # The level above handles whole blocks; this level handles the points before and after them.
        inner, outer = -(-left // BLOCK), right // BLOCK
        whole = outer > inner
        for a, b in (
            (left, np.where(whole, inner * BLOCK, right)),
            (np.where(whole, outer * BLOCK, right), right),
        ):
            owner, index = expand(a, b)
            start = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]) if len(owner) else owner
            some = owner[start]
            low[some] = np.minimum(low[some], np.minimum.reduceat(level_low[index], start))
            high[some] = np.maximum(high[some], np.maximum.reduceat(level_high[index], start))
        if not whole.any():
            return low, high
        left, right = np.where(whole, inner, 0), np.where(whole, outer, 0)
        size = -(-len(level_low) // BLOCK)
        level_low, level_high = curve.low[above : above + size], curve.high[above : above + size]
        above += size


def pack(name: str, curves: Sequence[Pyramid]) -> dict[str, npt.NDArray[Any]]:
    """Pack curves into a few arrays that can be kept on disk."""
    parts = {
        part: np.concatenate([np.zeros(0, np.int64), *(getattr(curve, part) for curve in curves)])
        for part in Pyramid._fields
    }
    counts = np.array([[len(curve.time_ns), len(curve.low)] for curve in curves], np.int64).reshape(-1, 2)
    first = np.vstack([np.zeros((1, 2), np.int64), np.cumsum(counts, axis=0)])
    return {f"{name}_first": first, **{f"{name}_{part}": array for part, array in parts.items()}}


def unpack(arrays: Mapping[str, npt.NDArray[Any]], name: str, index: int) -> Pyramid:
    """Return one of the curves that `pack` packed, without copying."""
    # Plain views: NumPy's own class for mapped files makes each small operation slower.
    (point, block), (next_point, next_block) = arrays[f"{name}_first"][index : index + 2].tolist()
    time, value, low, high = (np.asarray(arrays[f"{name}_{part}"]) for part in Pyramid._fields)
    return Pyramid(
        time[point:next_point], value[point:next_point], low[block:next_block], high[block:next_block]
    )


NS_PER_US = 1000

MOST_STEP_MARKS = 2000

# Times beyond this (146 years) do not come from a clock. Keeps the arithmetic inside int64.
FAR_NS = 1 << 62

Prepared = Mapping[str, npt.NDArray[Any]]
"""Arrays by name."""


class Span(NamedTuple):
    """The recording, and the range of it that a slice shows."""

    first_ns: int
    last_ns: int
    start_ns: int
    end_ns: int


def pack_meta(meta: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
    """Store a small mapping as an array of JSON text."""
    return np.frombuffer(json.dumps(meta).encode("ascii"), np.uint8)


def read_meta(prepared: Prepared, name: str) -> dict[str, Any]:
    """Read what `pack_meta` stored under this name."""
    return json.loads(bytes(prepared[name]))


def joined(
    first: str, prefix: str, names: Sequence[str], devices: Sequence[Sequence[npt.NDArray[Any]]]
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of all devices, one device after another, and where those of each device begin."""
    none = np.zeros(0, np.int64)
    return {
        first: np.cumsum([0, *(len(arrays[0]) for arrays in devices)], dtype=np.int64),
        **{
            f"{prefix}_{name}": np.concatenate([none, *(arrays[at] for arrays in devices)])
            for at, name in enumerate(names)
        },
    }


def requested_span(meta: Mapping[str, Any], start_us: float | None, end_us: float | None) -> Span:
    """The range that a client requests. None is the recording's start or end."""
    first_ns, last_ns = int(meta["start_ns"]), int(meta["end_ns"])
    start_ns = first_ns if start_us is None else _clamped_ns(start_us)
    end_ns = last_ns if end_us is None else _clamped_ns(end_us)
    return Span(first_ns, last_ns, start_ns, max(end_ns, start_ns))


def _clamped_ns(us: float) -> int:
    return round(min(max(us * NS_PER_US, -FAR_NS), FAR_NS))


def step_marks(prepared: Prepared, span: Span, prefix: str = "") -> list[pb.StepMark]:
    """Steps in the range, thinned out if there are very many. prefix: of the arrays' names."""
    start, end = prepared[f"{prefix}step_start_ns"], prepared[f"{prefix}step_end_ns"]
    name = prepared[f"{prefix}step_name"]
    shown = np.flatnonzero((start < span.end_ns) & (end > span.start_ns))
    shown = shown[:: len(shown) // MOST_STEP_MARKS + 1]
    return [
        pb.StepMark(
            name=text_at(prepared, f"{prefix}text", name[i]),
            start_us=start[i] / NS_PER_US,
            end_us=end[i] / NS_PER_US,
        )
        for i in shown
    ]


def curve_message(curve: CurveSlice) -> pb.Curve:
    return pb.Curve(
        time_us=(curve.time_ns / NS_PER_US).tolist(), low=curve.low.tolist(), high=curve.high.tolist()
    )


def heaviest_nodes(nodes: Int64, weight: Int64, most: int) -> Int64:
    """Return the `most` heaviest of some nodes, ascending.

    nodes: ascending indices, parents before their children. weight: of each node with all that is below it.
    No node is heavier than its parent, and of equal ones the first counts: what is returned has the parents
    of what it has.
    """
    if len(nodes) <= most:
        return nodes
    order = np.argsort(-weight[nodes], kind="stable")
    return np.sort(nodes[order[:most]])


# Mangled C++ names have up to thousands of characters. Longer ones are cut off.
LONGEST = 300


class TextTable:
    """Collects strings and stores each once."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts = [_shortened(text) for text in texts]
        self._index: dict[str, int] = {}

    def add(self, text: str, longest: int = LONGEST) -> int:
        """Return the index of this text, cut off at `longest` characters."""
        text = _shortened(text, longest)
        index = self._index.get(text)
        if index is None:
            index = self._index[text] = len(self._texts)
            self._texts.append(text)
        return index

    def arrays(self) -> tuple[UInt8, Int64]:
        """Return the bytes of all strings, and where each begins, shape (strings + 1,)."""
        encoded = [text.encode("utf-8", "replace") for text in self._texts]
        first = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return np.frombuffer(b"".join(encoded), np.uint8), first


def text_at(prepared: Prepared, table: str, index: int) -> str:
    """Return a string of the table of this name."""
    start, end = prepared[f"{table}_first"][index : index + 2].tolist()
    return bytes(prepared[table][start:end]).decode("utf-8", "replace")


def _shortened(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
