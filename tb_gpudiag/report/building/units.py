"""Values of the wire: µs from ns, places and time ranges."""

from __future__ import annotations

from typing import Any

import numpy as np

from tb_gpudiag.facts.core.intervals import ShownRanges
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.rules.answer import Place, place_at
from tb_gpudiag.wording.format import one_line

UINT32_MAX = 2**32 - 1


def us(nanoseconds: float | np.integer[Any]) -> float:
    """Convert nanoseconds to the wire's microseconds."""
    return round(float(nanoseconds)) / 1_000


def place(where: Place) -> pb.Place:
    """A rule's place, bounded and safe to show."""
    return pb.Place(
        file=one_line(where.file),
        line=min(max(where.line, 0), UINT32_MAX),
        line_kind=where.line_kind.name,
        function=one_line(where.function),
        operator=one_line(where.operator),
        module=one_line(where.module),
        range=one_line(where.range),
        caller=place(place_at(where.caller)) if where.caller is not None else None,
        us=us(where.time_ns),
        bytes=where.bytes,
    )


def time_ranges(ranges: ShownRanges) -> list[pb.TimeRange]:
    """Where to look on the timeline."""
    return [
        pb.TimeRange(start_us=us(start), end_us=us(end), device=int(device))
        for start, end, device in zip(*ranges, strict=True)
    ]
