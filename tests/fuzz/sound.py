"""What holds for all that is read, whatever the file: it is bounded, finite, and no longer than the file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.trace.events import Trace
from tb_gpudiag.trace.trace_parts import LONGEST_NAME, LONGEST_NS
from tests.fuzz.odd_values import MARKUP

MOST_PER_BYTE: Final = 64
"""Characters of all texts for each byte of a file. What shows shared texts over and over has more."""

_TAG: Final = MARKUP[MARKUP.index("<odd") :][:5]
_LARGEST: Final = 1 << 62
_LONGEST_ERROR: Final = 2_000
# A few values of its own that a trace of nothing has.
_OWN: Final = 4_096
# Fields that hold what may be any number: ids, and what the file itself says.
_NO_BOUND: Final = frozenset(
    {
        "correlation",
        "external_id",
        "python_id",
        "python_parent",
        "sequence",
        "forward_thread",
        "stream",
        "address",
        "block_address",
    }
)


def assert_clear(error: GpudiagError) -> None:
    """Check that an error says what happened and what to do, whatever it quotes of the file."""
    assert error.what, error
    assert error.remedy, error
    assert len(str(error)) < _LONGEST_ERROR, len(str(error))


def assert_no_markup(page: str) -> None:
    """Check that no text of the file became a tag of a page."""
    assert _TAG not in page, page[page.index(_TAG) - 200 :][:400]


def assert_sound(trace: Trace, size: int) -> None:
    """Check the columns of a trace that was read from so many bytes."""
    events, memory = trace.events, trace.memory
    for table in (events, memory, trace.segments):
        if table is not None:
            _assert_columns(table)
    assert len(events) + len(memory) <= size, "more rows than bytes"
    assert not len(events) or (events.start_ns.min() >= 0 and (np.diff(events.start_ns) >= 0).all())
    assert ((events.duration_ns >= 0) & (events.duration_ns <= LONGEST_NS)).all()
    assert (np.diff(memory.time_ns) >= 0).all()
    assert ((events.thread >= 0) & (events.thread < len(events.threads))).all()
    assert max(map(len, events.names), default=0) <= LONGEST_NAME
    for counter in trace.counters:
        assert np.isfinite(counter.value).all(), counter.name
    assert trace.events_read >= 0 <= trace.malformed_events
    _assert_texts(_texts(trace), size)


def _assert_columns(table: Any) -> None:
    """Check that columns hold numbers that may be added up."""
    for field in dataclasses.fields(table):
        column = getattr(table, field.name)
        if isinstance(column, np.ndarray) and column.dtype.kind in "iu" and field.name not in _NO_BOUND:
            assert not len(column) or -_LARGEST < column.min() <= column.max() < _LARGEST, field.name
        elif isinstance(column, np.ndarray) and column.dtype.kind == "f":
            assert not np.isinf(column).any(), field.name


def _texts(trace: Trace) -> Iterable[str]:
    events = trace.events
    yield from (*events.names, *events.call_stacks, *events.input_shapes, *events.input_types, *trace.notes)
    yield from (text for thread in events.threads for text in (thread.pid, thread.tid, thread.name))
    yield from trace.memory.stacks


def _assert_texts(texts: Iterable[str], size: int) -> None:
    total = sum(map(len, texts))
    assert total <= MOST_PER_BYTE * (size + _OWN), f"{total} characters of {size} bytes"
