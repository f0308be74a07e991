"""Launch hotspots in the Report and in every format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.wording.format import time_us
from tests.builder import TraceBuilder
from tests.facts.core.test_queue_depth import full_queue
from tests.report.reports import ranges_of, report_of, rows_of, usual_report
from tests.report.views.formats import FORMATS, one_space, words_in


def two_streams() -> TraceBuilder:
    """Two steps of 200 µs, each with an operator of 60 µs that launches on an idle GPU. At the end two
    launches queue up on another stream."""
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(2):
        at = 200.0 * step
        main.step(step, at=at, us=200)
        main.op("aten::add", at=at + 20, us=60)
        main.launch("add", at=at + 50, us=10, runs_at=at + 70, runs_us=30)
    main.launch("a", at=320, us=10, runs_at=340, runs_us=40, stream=20)
    main.launch("b", at=330, us=10, runs_at=380, runs_us=20, stream=20)
    return trace


def test_a_hotspot_says_what_the_host_spent_on_its_launches(tmp_path: Path) -> None:
    report = report_of(two_streams(), tmp_path)
    spots = {(spot.kind, spot.key): spot for spot in report.launch_hotspots}
    add = spots[pb.LaunchHotspot.operator, "aten::add"]
    assert (add.launches, add.host_us, add.dispatch_us, add.python_us) == (2, 20, 30 + 20 + 30, 20 + 140)
    assert (add.idle_us, add.idle_per_step_us) == (100, 50)
    # In each step from the operator's start to the kernel's.
    assert [(r.start_us, r.end_us, r.device) for r in add.ranges] == [(20, 70, 0), (220, 270, 0)]
    assert spots[pb.LaunchHotspot.kernel, "add"].ranges == add.ranges


@pytest.mark.slow
def test_launches_blocked_on_a_full_queue_are_counted(tmp_path: Path) -> None:
    report = report_of(full_queue(), tmp_path)
    (spot,) = (spot for spot in report.launch_hotspots if spot.kind == pb.LaunchHotspot.kernel)
    assert spot.full_queue_launches == 3
    assert spot.full_queue_us > 600


def test_every_format_shows_them(tmp_path: Path) -> None:
    report = report_of(two_streams(), tmp_path)
    for shown in (words_in(format, report) for format in FORMATS):
        for words in (
            "Launches by operator",
            "aten::add",
            time_us(80),
        ):
            assert one_space(words) in shown, words


def test_host_activities_and_families_have_time_ranges() -> None:
    report = usual_report()
    loading = [row["kind"] for row in rows_of(report, "host")].index("Data loading")
    assert ranges_of(report, "host", loading) == [(10, 610, -1), (1010, 1610, -1)]
    copies = [row["family"] for row in rows_of(report, "kernel_families")].index("Data movement")
    assert ranges_of(report, "kernel_families", copies) == [(645, 675, 0), (1645, 1675, 0)]


def test_autograd_between_operators_is_an_activity_and_not_the_line_that_called_it(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for number in range(3):
        main.step(number, at=1000 * number, us=1000)
        step = main.frame("train.py(12): step", at=1000 * number + 1, us=998)
        engine = "<built-in method run_backward of torch._C._EngineBase object at 0x1>"
        step.frame(engine, at=1000 * number + 100, us=800).op("MmBackward0", at=1000 * number + 200, us=600)
    rows = {row["activity"]: row["kind"] for row in rows_of(report_of(trace, tmp_path), "host")}
    assert rows["backward pass, between operators"] == "Backward pass"
