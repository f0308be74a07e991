"""The lines that clocks write: steps, means of several, and what TensorBoard shows of them."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_gpudiag.service.processes.child import Child, ChildEnded
from tb_gpudiag.trace.step_clocks.clock_state import ClockRecording, read_state
from tb_gpudiag.training import clock_sender
from tb_gpudiag.training.clock_sender import ClockSender
from tb_gpudiag.training.clocking import ClockLines, RankClock
from tb_gpudiag.vocabulary.written import TAGS
from tests.training.test_step_drift import COLUMNS, steps


def read_by_tensorboard(path: Path) -> Any:
    """Read all scalars of an event file or of a folder of them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # and boto3

    return EventAccumulator(str(path), size_guidance={"scalars": 0}).Reload()


@pytest.mark.slow
def test_a_file_of_a_day_is_bounded(tmp_path: Path) -> None:
    lines = ClockLines()
    count = sum(1 for part in range(864) for _ in lines.of(steps(1_000, seed=part), 0.0))
    assert 10_000 < count < 80_000


def test_a_line_is_the_mean_of_its_steps() -> None:
    rows = steps(70)
    found = list(ClockLines(10).of(rows, 1_000.0))
    assert [step for step, _, _ in found[:12]] == [*range(10), 11, 13]
    assert found[10][2] == pytest.approx(rows[10:12, 1:].mean(axis=0))
    assert found[-1][1] == pytest.approx(1_000 - rows[found[-1][0] + 1 :, 1].sum() / 1e3)


def test_a_line_has_the_phases_of_those_of_its_steps_that_were_timed(tmp_path: Path) -> None:
    rows = steps(12)
    rows[np.arange(12) % 3 > 0, 2:] = math.nan
    lines = list(ClockLines(4).of(rows, 1_000.0))
    assert [(step, math.isnan(values[1])) for step, _, values in lines[:4]] == [
        (0, False), (1, True), (2, True), (3, False),
    ]  # fmt: skip
    assert [values[1] for _, _, values in lines[4:]] == pytest.approx(
        [math.nan, rows[6, 2], rows[9, 2], math.nan], nan_ok=True
    )
    assert lines[4][2][0] == pytest.approx(rows[4:6, 1].mean())
    clock = RankClock(str(tmp_path), 0, 10.0)
    clock.add(rows[:, : COLUMNS - 1], 1, 1_000.0)
    events = read_by_tensorboard(tmp_path / "gpudiag" / "clock" / "rank-0")
    assert [one.step for one in events.Scalars("gpudiag/clock/step_ms")] == list(range(12))
    assert [one.step for one in events.Scalars("gpudiag/clock/input_ms")] == [0, 3, 6, 9]


def test_a_job_that_starts_again_goes_on_counting(tmp_path: Path) -> None:
    """TensorBoard's default server shows only the last of two series that begin at 0."""
    for first in (0, 400):
        clock = RankClock(str(tmp_path), 0, 10.0)
        clock.keep([ClockRecording("a.pt.trace.json", "slower", 3, 1_000.0)])
        clock.add(steps(400)[:, : COLUMNS - 1], 1, 1_000.0)
        state = read_state(str(tmp_path / "gpudiag" / "clock"), "", "run")
        assert state.ranks[0].step == first + 399
        assert state.recordings[0][-1].step == first + 3
    scalars = read_by_tensorboard(tmp_path / "gpudiag" / "clock" / "rank-0").Scalars("gpudiag/clock/step_ms")
    assert len(scalars) == 800
    assert [one.step for one in scalars] == list(range(800))


def test_ranks_that_ended_at_different_steps_record_the_same_ones(tmp_path: Path) -> None:
    """Each counts on from its own last step, and an order names a step of the rank that gave it."""
    for rank, count in ((0, 400), (1, 500)):
        RankClock(str(tmp_path), rank, 10.0).add(steps(count)[:, : COLUMNS - 1], 2, 1_000.0)
    clock = RankClock(str(tmp_path), 1, 10.0)
    order = tmp_path / "gpudiag" / "clock" / "order"
    for odd in ({}, {"at": 450}, {"at": "450", "first": 400, "ranks": [1], "why": "late"}):
        order.write_text(json.dumps(odd))
        assert clock.add(steps(300)[:, : COLUMNS - 1], 2, 1_000.0)["at"] == 0
    order.write_text(json.dumps({"at": 450, "first": 400, "ranks": [1], "why": "late", "time_s": 1.0}))
    assert clock.add(steps(10)[:, : COLUMNS - 1], 2, 1_000.0)["at"] == 50


def test_tensorboard_shows_a_line_per_step(tmp_path: Path) -> None:
    clock = RankClock(str(tmp_path), 3, 10.0)
    clock.add(steps(50)[:, : COLUMNS - 1], 1, 1_000.0)
    events = read_by_tensorboard(tmp_path / "gpudiag" / "clock" / "rank-3")
    assert sorted(events.Tags()["scalars"]) == sorted(TAGS)
    scalars = events.Scalars("gpudiag/clock/step_ms")
    assert [one.step for one in scalars] == list(range(50))
    assert scalars[7].value == pytest.approx(steps(50)[7, 1])


def test_a_clock_that_gives_up_its_last_steps_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked, released = threading.Event(), threading.Event()

    def ask(*_: object) -> None:
        asked.set()
        released.wait()
        raise ChildEnded(1)

    monkeypatch.setattr(Child, "ask", ask)
    monkeypatch.setattr(Child, "close", lambda _: released.set())
    monkeypatch.setattr(clock_sender, "SEND_EVERY_S", 0.0)
    monkeypatch.setattr(clock_sender, "CLOSE_S", 0.0)
    sender = ClockSender(str(tmp_path), lambda: (0, 1))
    sender.start()
    asked.wait()
    sender.close()
    (message,) = caplog.messages
    assert f"the last steps were not written to {tmp_path}" in message
