"""Arrays that are prepared once for a trace, kept on disk, and read by every slice."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.curves import CurveSlice
from tb_gpudiag.report.slices.timeline_text import text_at

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
    text, text_first, name = (prepared[f"{prefix}{part}"] for part in ("text", "text_first", "step_name"))
    shown = np.flatnonzero((start < span.end_ns) & (end > span.start_ns))
    shown = shown[:: len(shown) // MOST_STEP_MARKS + 1]
    return [
        pb.StepMark(
            name=text_at(text, text_first, name[i]),
            start_us=start[i] / NS_PER_US,
            end_us=end[i] / NS_PER_US,
        )
        for i in shown
    ]


def curve_message(curve: CurveSlice) -> pb.Curve:
    """A slice of a curve on the wire."""
    return pb.Curve(
        time_us=(curve.time_ns / NS_PER_US).tolist(), low=curve.low.tolist(), high=curve.high.tolist()
    )
