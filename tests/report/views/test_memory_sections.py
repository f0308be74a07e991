"""Memory in words."""

from __future__ import annotations

from typing import Any

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.memory_messages import memory_messages
from tb_gpudiag.wording.format import size_bytes
from tests.report.views.formats import FORMATS, one_space, words_in
from tests.simulator import simulate
from tests.trace.support import read_bytes
from tests.with_each import with_each

MB = 1 << 20


@pytest.fixture(scope="module")
def leaking() -> pb.DeviceMemory:
    facts = Facts(read_bytes(simulate("leak").bytes()))
    return memory_messages(facts.memory, facts.events)[0]


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_shows_what_the_report_says(format: str, leaking: pb.DeviceMemory) -> None:
    shown = words_in(format, pb.Report(memory=[leaking]))
    for words in (
        f"GPU 0: {size_bytes(leaking.peak_allocated_bytes)} allocated at the peak (in the backward pass",
        f"{size_bytes(leaking.capacity_bytes)} capacity",
        "gradients",
        f"GPU 0: the floor rises by {size_bytes(8 * MB)} per step (over 5 steps",
        "memory is full after",
        "reserved but unused at the peak",
        "Growing allocations",
        f"{size_bytes(8 * MB)} per step",
        "aten::clone",
        "Memory at the peak",
    ):
        assert one_space(words) in shown


def _words(**memory: Any) -> str:
    return words_in("text", pb.Report(memory=[pb.DeviceMemory(**memory)]))


@with_each(
    ("trend", "low", "high", "words"),
    [
        ({"state": "rising"}, 1, 3, "; 95% confidence: {low} to {high})"),
        ({"state": "rising", "steps": 3}, 1, 3, "3 steps)"),
        ({"state": "unclear"}, -1, 1, "; 95% confidence: {low} to {high})"),
        (
            {"state": "falling", "bytes_per_step": -2 * MB},
            -3,
            -1,
            "falls by {change} per step (over 5 steps; 95% confidence: {least} to {most})",
        ),
        ({"state": "plateau"}, 0, 0, "rose and now stays level (over 5 steps)"),
        (
            {"state": "rising", "unit": "second", "start_us": 0.0, "end_us": 1e6},
            0,
            0,
            "rises by {change} in 1 s (over 5 time windows)",
        ),
    ],
)
def test_the_floor_in_words(trend: dict[str, Any], low: int, high: int, words: str) -> None:
    slopes = {"low_bytes_per_step": low * MB, "high_bytes_per_step": high * MB}
    line = pb.FloorTrend(**{"bytes_per_step": 2 * MB, "steps": 5, "unit": "step", **slopes, **trend})
    wanted = words.format(
        change=size_bytes(2 * MB),
        low=size_bytes(low * MB),
        high=size_bytes(high * MB),
        least=size_bytes(-high * MB),
        most=size_bytes(-low * MB),
    )
    assert one_space(wanted) in _words(name="GPU 0", trend=line)


@with_each(
    ("unit", "left", "words"),
    [
        ("step", 90.0, "full after about 90 steps"),
        ("step", 0.4, "full after less than one step"),
        ("second", 90.0, "full after about 90"),
    ],
)
def test_when_memory_is_full_in_words(unit: str, left: float, words: str) -> None:
    trend = pb.FloorTrend(state="rising", bytes_per_step=MB, steps=5, unit=unit)
    assert words in _words(trend=trend, steps_until_full=left)


def test_the_segments_of_a_snapshot_in_words() -> None:
    reserve = pb.MemoryReserve(
        segments=1, largest_free_bytes=6 * MB, free_in_used_segments_bytes=6 * MB, most_unused_bytes=6 * MB
    )
    segment = pb.MemorySegment(address="0x7f00", bytes=10 * MB, used_bytes=4 * MB, expandable=True)
    shown = _words(name="GPU 0", reserve=reserve, segments=[segment])
    size = one_space(size_bytes(6 * MB))
    assert f"1 segment; the largest free block has {size}; {size} are free inside segments in use" in shown
    assert "Partly free segments" in shown
    assert "0x7f00" in shown
    assert "yes" in shown
