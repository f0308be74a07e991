"""Values of the wire: µs from ns, places and time ranges; and messages that repeat what an object has."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import numpy as np
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from tb_gpudiag.facts.core.intervals import ShownRanges
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.rules.answer import Place, place_at
from tb_gpudiag.wording.format import one_line

UINT32_MAX = 2**32 - 1

M = TypeVar("M", bound=Message)


def us(nanoseconds: float | np.integer[Any]) -> float:
    """Convert nanoseconds to the wire's microseconds."""
    return round(float(nanoseconds)) / 1_000


def message_of(kind: type[M], source: object, /, **given: Any) -> M:
    """Make a message of an object. Fields that are not given are its attributes of the same name; `_us` is
    made of `_ns`. Texts are made safe to show, and counts cut to what fits. Raises AttributeError for a field
    that the object lacks."""
    for name, is_count in _fields(kind.DESCRIPTOR):
        if name in given:
            continue
        if name.endswith("_us"):
            given[name] = us(getattr(source, f"{name[:-3]}_ns"))
            continue
        value = getattr(source, name)
        if isinstance(value, str):
            value = one_line(value)
        elif is_count:
            value = min(max(int(value), 0), UINT32_MAX)
        given[name] = value
    return kind(**given)


@cache
def _fields(kind: Descriptor) -> list[tuple[str, bool]]:
    """Return the names of a message's fields, and which of them are counts."""
    return [(field.name, field.cpp_type == field.CPPTYPE_UINT32) for field in kind.fields]


def place(where: Place) -> pb.Place:
    """A rule's place, bounded and safe to show."""
    return message_of(
        pb.Place,
        where,
        line_kind=where.line_kind.name,
        caller=place(place_at(where.caller)) if where.caller is not None else None,
        us=us(where.time_ns),
        candidates=[],
    )


def time_ranges(ranges: ShownRanges) -> list[pb.TimeRange]:
    """Where to look on the timeline."""
    return [
        pb.TimeRange(start_us=us(start), end_us=us(end), device=int(device))
        for start, end, device in zip(*ranges, strict=True)
    ]
