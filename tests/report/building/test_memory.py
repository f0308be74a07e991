"""Memory in the Report and in its views: the facts' figures, bounded, and the same words everywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building import memory_messages as of_memory
from tb_gpudiag.report.building.memory_messages import memory_messages
from tb_gpudiag.report.views.html import to_html
from tb_gpudiag.report.views.markdown import to_markdown
from tb_gpudiag.report.views.text import to_text
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.wording.format import size_bytes
from tests.builder import SnapshotBuilder, TraceBuilder
from tests.report.reports import HOSTILE, report_of
from tests.simulator import simulate
from tests.trace.support import read_bytes

MB = 1 << 20


@pytest.fixture(scope="module")
def leaking() -> tuple[Facts, pb.DeviceMemory]:
    facts = Facts(read_bytes(simulate("leak").bytes()))
    return facts, memory_messages(facts)[0]


def test_the_report_has_the_figures_of_the_facts(leaking: tuple[Facts, pb.DeviceMemory]) -> None:
    facts, message = leaking
    fact = facts.memory[0]
    assert fact.trend is not None
    assert (message.device, message.name, message.relative) == (0, "GPU 0", False)
    assert message.peak_allocated_bytes == fact.peak.allocated_bytes
    assert message.peak_us * 1_000 == pytest.approx(fact.peak.at_ns)
    assert message.floor_slope_bytes_per_step == fact.trend.per_unit == message.trend.bytes_per_step
    assert (message.trend.state, message.trend.unit, message.trend.steps) == (
        "rising",
        "step",
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
    assert site.place.bytes == site.bytes == site.count * site.size_bytes


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
    message = memory_messages(leaking[0])[0]
    (site,) = message.sites
    counts = (len(message.floors), len(message.peak_owners), len(site.ranges), site.stack.count("\n"))
    assert counts == (1, 1, 1, 0)


def test_without_memory_there_is_no_section(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().op("aten::mm", at=0, us=5)
    report = report_of(trace, tmp_path)
    assert not report.memory
    assert "\nMemory\n" not in to_text([report])


@pytest.mark.parametrize("view", [to_text, to_markdown, to_html])
def test_every_view_says_what_the_report_says(view: object, leaking: tuple[Facts, pb.DeviceMemory]) -> None:
    _, message = leaking
    assert callable(view)
    shown = view([pb.Report(memory=[message])])
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", shown.replace("\\", "")))
    for words in (
        f"GPU 0: {size_bytes(message.peak_allocated_bytes)} allocated at the peak (in backward",
        f"of {size_bytes(message.capacity_bytes)}",
        "gradients",
        f"GPU 0: the floor rises by {size_bytes(8 * MB)} a step (over 5 steps",
        "memory is full after",
        "reserved and not used at the peak",
        "What grows",
        f"{size_bytes(8 * MB)} a step",
        "aten::clone",
        "What the peak holds",
    ):
        assert words in plain


@pytest.mark.parametrize(
    ("trend", "words"),
    [
        (
            {"state": "rising", "low_bytes_per_step": MB, "high_bytes_per_step": 3 * MB},
            "; 95 %: 1 MiB to 3 MiB)",
        ),
        (
            {"state": "rising", "low_bytes_per_step": MB, "high_bytes_per_step": 3 * MB, "steps": 3},
            "3 steps)",
        ),
        (
            {"state": "unclear", "low_bytes_per_step": -MB, "high_bytes_per_step": MB},
            "; 95 %: -1 MiB to 1 MiB)",
        ),
        (
            {
                "state": "falling",
                "bytes_per_step": -2 * MB,
                "low_bytes_per_step": -3 * MB,
                "high_bytes_per_step": -MB,
            },
            "falls by 2 MiB a step (over 5 steps; 95 %: 1 MiB to 3 MiB)",
        ),
        ({"state": "plateau"}, "has risen and stays where it is (over 5 steps)"),
        ({"state": "rising", "unit": "second"}, "rises by 2 MiB a second (over 5 windows of time)"),
    ],
)
def test_the_floor_in_words(trend: dict[str, Any], words: str) -> None:
    line = pb.FloorTrend(**{"bytes_per_step": 2 * MB, "steps": 5, "unit": "step", **trend})
    shown = to_text([pb.Report(memory=[pb.DeviceMemory(name="GPU 0", trend=line)])])
    assert words in " ".join(shown.split())


@pytest.mark.parametrize(
    ("unit", "left", "words"),
    [
        ("step", 90.0, "full after about 90 steps"),
        ("step", 0.4, "full after less than a step"),
        ("second", 90.0, "full after about 90 s"),
    ],
)
def test_when_memory_is_full_in_words(unit: str, left: float, words: str) -> None:
    trend = pb.FloorTrend(state="rising", bytes_per_step=MB, steps=5, unit=unit)
    shown = to_text([pb.Report(memory=[pb.DeviceMemory(trend=trend, steps_until_full=left)])])
    assert words in " ".join(shown.split())


def test_a_snapshot_tells_its_segments(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(10 * MB, at=0)
    snapshot.allocate(4 * MB, at=1, stack=["train.py(3): main"])
    (message,) = memory_messages(Facts(read_trace(str(snapshot.write(tmp_path)))))
    assert message.reserve.segments == 1
    assert message.reserve.largest_free_bytes == message.reserve.free_in_used_segments_bytes == 6 * MB
    (segment,) = message.segments
    assert (segment.bytes, segment.used_bytes, segment.largest_free_bytes) == (10 * MB, 4 * MB, 6 * MB)
    for shown in (to_text, to_markdown, to_html):
        said = shown([pb.Report(memory=[message])])
        assert "1 segment, the largest free block is 6 MiB" in said
        assert segment.address in said


def test_names_of_the_trace_stay_text(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(6):
        at = step * 100.0
        main.step(step, at=at, us=100)
        main.frame(f"{HOSTILE}.py(3): {HOSTILE}", at=at, us=90).frame(f"nn.Module: {HOSTILE}_0", at=at, us=80)
        main.op(HOSTILE, at=at + 5, us=20)
        main.alloc(MB, at=at + 10)
    report = report_of(trace, tmp_path)
    assert report.memory[0].sites
    assert "<img" not in to_html([report])
    assert "<img" not in MarkdownIt().enable("table").render(to_markdown([report]))
    assert "\x1b" not in to_text([report])
