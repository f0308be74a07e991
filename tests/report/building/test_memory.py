"""Memory in the Report: the figures of the facts, in bounded lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building import memory_messages as of_memory
from tb_gpudiag.report.building.memory_messages import memory_messages
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder, TraceBuilder
from tests.report.reports import report_of
from tests.report.views.formats import to_text
from tests.simulator import simulate
from tests.trace.support import read_bytes

MB = 1 << 20


@pytest.fixture(scope="module")
def leaking() -> tuple[Facts, pb.DeviceMemory]:
    facts = Facts(read_bytes(simulate("leak").bytes()))
    return facts, memory_messages(facts.memory, facts.events)[0]


def test_the_report_has_the_figures_of_the_facts(leaking: tuple[Facts, pb.DeviceMemory]) -> None:
    facts, message = leaking
    fact = facts.memory[0]
    assert fact.trend is not None
    assert (message.device, message.name, message.relative) == (0, "GPU 0", False)
    assert message.peak_allocated_bytes == fact.peak.allocated_bytes
    assert message.peak_us * 1_000 == pytest.approx(fact.peak.at_ns)
    assert message.floor_slope_bytes_per_step == fact.trend.per_unit
    assert (message.trend.state, message.trend.unit, message.trend.steps) == (
        "rising",
        pb.FloorTrend.step,
        fact.trend.steps,
    )
    assert [floor.bytes for floor in message.floors] == fact.floors.bytes.tolist()
    assert [floor.excused for floor in message.floors] == fact.floors.excused.tolist()
    assert message.steps_until_full == pytest.approx(
        (message.capacity_bytes - message.peak_allocated_bytes) / message.floor_slope_bytes_per_step
    )
    (site,) = message.sites
    assert (site.operator, site.place.function, site.bytes_per_step) == ("aten::clone", "remember", 8 * MB)
    assert site.stack.split("\n")[-1].endswith(": remember")
    assert site.bytes == site.count * site.size_bytes


def test_kinds_and_owners_add_up_to_the_peak(leaking: tuple[Facts, pb.DeviceMemory]) -> None:
    _, message = leaking
    assert sum(kind.bytes for kind in message.peak_kinds) == message.peak_allocated_bytes
    assert sum(owner.bytes for owner in message.peak_owners) == message.peak_allocated_bytes


def test_a_site_shows_when_it_allocates(leaking: tuple[Facts, pb.DeviceMemory]) -> None:
    facts, message = leaking
    (site,) = message.sites
    made = {int(time) for time in facts.memory[0].allocations.time_ns}
    assert site.ranges
    for shown in site.ranges:
        assert any(shown.start_us * 1_000 <= time <= shown.end_us * 1_000 for time in made)
        assert shown.device == 0


def test_every_list_is_bounded(
    monkeypatch: pytest.MonkeyPatch, leaking: tuple[Facts, pb.DeviceMemory]
) -> None:
    for limit in ("FLOORS_LIMIT", "SITES_LIMIT", "OWNERS_LIMIT", "RANGES_LIMIT", "FRAMES_LIMIT"):
        monkeypatch.setattr(of_memory, limit, 1)
    message = memory_messages(leaking[0].memory, leaking[0].events)[0]
    (site,) = message.sites
    counts = (len(message.floors), len(message.peak_owners), len(site.ranges), site.stack.count("\n"))
    assert counts == (1, 1, 1, 0)


def test_without_memory_there_is_no_section(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().op("aten::mm", at=0, us=5)
    report = report_of(trace, tmp_path)
    assert not report.memory
    assert "\nMemory\n" not in to_text([report])


def test_a_snapshot_has_its_segments(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(10 * MB, at=0)
    snapshot.allocate(4 * MB, at=1, stack=["train.py(3): main"])
    facts = Facts(read_trace(str(snapshot.write(tmp_path))))
    (message,) = memory_messages(facts.memory, facts.events)
    assert message.reserve.segments == 1
    assert message.reserve.largest_free_bytes == message.reserve.free_in_used_segments_bytes == 6 * MB
    (segment,) = message.segments
    assert (segment.bytes, segment.used_bytes, segment.largest_free_bytes) == (10 * MB, 4 * MB, 6 * MB)
    assert segment.address.startswith("0x")
