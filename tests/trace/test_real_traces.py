"""All real traces, read in two ways."""

from __future__ import annotations

import gzip
from itertools import zip_longest
from pathlib import Path
from unittest import mock

import pytest

from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.read import read_trace
from tests.conftest import SHARED_TRACES
from tests.real_traces import first_in, real_facts
from tests.trace.support import Row, memory_rows, rows, slow_read

pytestmark = pytest.mark.real

FILES = sorted(SHARED_TRACES.rglob("*.gz"))
# Python takes seconds for each of the others, and has 11 s for all of these.
MOST_BYTES = 1_000_000


@pytest.mark.parametrize(
    "path",
    [p for p in FILES if p.stat().st_size <= MOST_BYTES],
    ids=lambda path: str(path.relative_to(SHARED_TRACES))[:60],
)
def test_every_column_of_every_event(path: Path) -> None:
    trace = real_facts(path).trace
    if trace.clock_offsets_ns:
        with mock.patch("tb_gpudiag.trace.assemble.on_host_clock", lambda events: (events, {})):
            trace = read_trace(str(path))
    spans, memory, elements = slow_read(gzip.decompress(path.read_bytes()).decode("utf-8", "replace"))
    assert trace.status == "COMPLETE"
    assert (trace.events_read, trace.malformed_events) == (elements, 0)
    assert _first_difference(rows(trace), spans) is None
    assert _first_difference(memory_rows(trace), memory) is None
    assert (
        min(int(column.min()) for column in (trace.events.start_ns, trace.memory.time_ns) if len(column)) == 0
    )


def _first_difference(found: list[Row], expected: list[Row]) -> tuple[Row | None, Row | None] | None:
    """pytest's own comparison of a million rows takes longer than the time limit."""
    return next((pair for pair in zip_longest(found, expected) if pair[0] != pair[1]), None)


def test_all_are_found(shared_traces: Path) -> None:
    found = find_traces(str(shared_traces))
    assert sorted(file.path for file in found.files) == [str(path) for path in FILES]
    assert found.problems == []
    assert {file.run for file in found.files} == {str(p.parent.relative_to(shared_traces)) for p in FILES}
    assert all(file.span.isdecimal() and file.worker and file.size_bytes for file in found.files)


def test_metadata(shared_traces: Path) -> None:
    with_base = first_in("h100_owlv2").trace.metadata
    assert with_base.base_time_ns > 1_600_000_000_000_000_000
    assert with_base.device_properties[0]["name"] == "NVIDIA H100 80GB HBM3"
    assert (with_base.record_shapes, with_base.simulated) == (True, False)
    distributed = first_in("v100_ddp_memory").trace.metadata
    assert distributed.distributed["world_size"] > 1
    assert not distributed.record_shapes
