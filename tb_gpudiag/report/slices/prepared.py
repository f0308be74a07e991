"""Arrays that are prepared once for a trace, kept on disk, and read by every slice.

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
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.curves import CurveSlice

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
