"""Points in the order of time, changes and what changed there, and views of both."""

from __future__ import annotations

import numpy as np
import pytest

from tb_gpudiag.jobs.history.history_view import history_document
from tb_gpudiag.jobs.history.run_history import histories
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.html import document_html
from tb_gpudiag.report.views.markdown import document_markdown
from tb_gpudiag.report.views.text import document_text
from tests.jobs.compare.sides import finding
from tests.jobs.history.runs import MINUTE, START_NS, recording
from tests.report.views.formats import Page, one_space, rendered
from tests.with_each import with_each


def test_points_are_in_the_order_of_time() -> None:
    (history,) = histories([recording(number, 1000 + number) for number in (3, 1, 2)])
    assert [point.span for point in history.points] == ["1", "2", "3"]
    point = history.points[0]
    assert (point.step_us, point.low_step_us, point.high_step_us, point.steps) == (1001, 1000.25, 1001.75, 6)
    assert point.time_s == pytest.approx((START_NS + MINUTE) / 1e9)
    (share,) = point.shares
    assert share.cause == pb.CauseTime.computing
    assert share.us == pytest.approx(1001)


def test_a_change_of_the_step_time_in_the_middle() -> None:
    generator = np.random.default_rng(1)
    made = [
        recording(
            number,
            int((1000 if number < 20 else 1500) + generator.normal(0, 10)),
            computing=1.0 if number < 20 else 1000 / 1500,
            findings=[finding("GD101", 100)] if number >= 20 else [finding("GD501", 100)],
        )
        for number in range(40)
    ]
    (history,) = histories(made)
    (change,) = history.changes
    assert (change.point, change.what, change.unit) == (20, pb.Change.step, pb.Change.us)
    assert change.before == pytest.approx(1000, rel=0.01)
    assert change.after == pytest.approx(1500, rel=0.01)
    assert change.causes[0].cause == pb.CauseTime.input
    assert change.causes[0].us == pytest.approx(500, rel=0.02)
    said = change.sentence.replace("\u00a0", " ")
    assert said.startswith("Since recording 21 a step takes 1.50 ms instead of 1")
    assert "µs more data loading per step" in said
    assert "New findings: GD101 name_GD101. Gone findings: GD501 name_GD501." in said


@pytest.mark.slow
def test_noise_changes_nothing() -> None:
    generator = np.random.default_rng(1)
    for _ in range(10):
        steps = generator.normal(1000, 50, 40).astype(int).tolist()
        (history,) = histories([recording(number, step) for number, step in enumerate(steps)])
        assert not history.changes
        assert not history.drifts


def test_a_gpu_that_is_less_busy_in_the_same_time() -> None:
    made = [recording(number, computing=0.9 if number < 10 else 0.5) for number in range(20)]
    (history,) = histories(made)
    assert [(change.what, change.point) for change in history.changes] == [(pb.Change.busy, 10)]
    assert "the GPU is busy 50.0% of the time instead of 90.0%" in history.changes[0].sentence


@with_each("load", [False, True])
def test_what_takes_the_step_changes_under_a_load_that_hides_its_time(load: bool) -> None:
    """Every second recording is of a machine that something else uses: its steps take twice as long."""
    made = [
        recording(
            number,
            1000 * (1 + (load and number % 2)),
            computing=0.9 if number < 10 else 0.6,
            devices=0,
        )
        for number in range(20)
    ]
    (history,) = histories(made)
    (change,) = history.changes
    assert (change.what, change.point) == (pb.Change.part, 10)
    assert "computing takes 60.0% of a step instead of 90.0%" in change.sentence.replace("\u00a0", " ")


def test_a_step_that_becomes_slower_bit_by_bit() -> None:
    (history,) = histories([recording(number, 1000 + 100 * number) for number in range(12)])
    (change,) = history.changes
    assert change.gradual
    assert change.sentence.startswith("Since recording 6, or gradually from recording 1 to 12, a step takes")


def test_ranks_have_a_history_each() -> None:
    made = [
        recording(
            number, id=f"{rank}-{number}", rank=rank, worker=f"w{rank}", at_ns=START_NS + number * MINUTE
        )
        for rank in range(10)
        for number in range(3)
    ]
    found = histories(made)
    assert [history.points[0].rank for history in found] == list(range(8))
    assert list(found[0].notes) == ["The run has 10 ranks; the first 8 are shown."]


def test_workers_without_ranks_that_recorded_at_once_are_apart() -> None:
    def made(apart_ns: int) -> int:
        return len(
            histories(
                recording(i, id=str(i), rank=-1, worker=f"w{i}", at_ns=START_NS + i * apart_ns)
                for i in range(2)
            )
        )

    assert made(0) == 2
    assert made(MINUTE) == 1


def test_runs_are_apart() -> None:
    made = [recording(0, run="a", id="a"), recording(0, run="b", id="b")]
    assert [history.run for history in histories(made)] == ["a", "b"]


def test_the_same_recording_counts_once() -> None:
    (history,) = histories([recording(1), recording(1)])
    assert len(history.points) == 1


@with_each(
    ("span", "seconds"),
    [("1623143089861", 1623143089.861), ("1695835535000123456", 1695835535.000123456), ("12", 0), ("", 0)],
)
def test_the_time_of_a_trace_without_a_clock(span: str, seconds: float) -> None:
    (history,) = histories([recording(1, at_ns=0, span=span)])
    assert history.points[0].time_s == pytest.approx(seconds)
    assert bool(history.notes) is not bool(seconds)


def test_recordings_without_steps_are_noted() -> None:
    (history,) = histories([recording(1, steps_basis="none")])
    assert history.points[0].step_us == 0
    assert history.notes == ["1 recording without steps: no step time."]


def test_another_gpu_is_noted() -> None:
    made = [recording(number, device_name="A" if number < 2 else "B") for number in range(4)]
    assert histories(made)[0].notes == ["The GPU changed from “A” to “B”."]


def test_snapshots_have_no_history() -> None:
    assert histories([recording(1, kind="snapshot")]) == []


@pytest.mark.slow
def test_every_format_shows_changes_and_points() -> None:
    made = [
        recording(number, 1000 if number < 50 else 1500, findings=[finding("GD101", 1)], run="my-run")
        for number in range(100)
    ]
    document = history_document(histories(made))
    for words in (
        one_space(Page(rendered(document_markdown(document))).words),
        one_space(Page(document_html(document)).words),
        one_space(document_text(document)),
    ):
        assert "my-run · rank 0" in words
        assert "1 change. In the last recording a step takes 1.50 ms" in words
        assert "Since recording 51 a step takes 1.50 ms instead of 1 ms" in words
        assert "of 100 recordings" in words
        assert "2023-11-14 22:13:20" in words


@pytest.mark.parametrize(("count", "headline"), [(3, "Too few recordings"), (4, "No change")])
def test_headline_of_nothing(count: int, headline: str) -> None:
    document = history_document(histories([recording(number) for number in range(count)]))
    assert document.reports[0].headline.startswith(headline)


def test_several_histories_have_an_overview() -> None:
    document = history_document(histories([recording(0, run="a", id="a"), recording(0, run="b", id="b")]))
    assert document.overview
    assert [row[0] for row in document.overview.rows] == ["a · rank 0", "b · rank 0"]


def test_a_hostile_time_is_not_shown() -> None:
    document = history_document(histories([recording(1, at_ns=10**30)]))
    assert "#" in document_text(document)
