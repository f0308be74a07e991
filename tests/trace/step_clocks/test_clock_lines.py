"""Lines of step clocks: as TensorBoard reads them, and files that are cut off, damaged or not ours."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.errors import GpudiagError, NotATrace, NothingToRead
from tb_gpudiag.trace.files.file_names import clock_of
from tb_gpudiag.trace.step_clocks.clock_state import read_lines
from tb_gpudiag.training.clocking import RankClock
from tb_gpudiag.training.event_records import append_scalars
from tb_gpudiag.vocabulary.written import FULL_LINES, PHASES, TAGS
from tests.training.test_clocking import read_by_tensorboard
from tests.training.test_step_drift import COLUMNS, steps
from tests.with_each import with_each


def clocks(folder: Path, counts: list[int]) -> Path:
    """Write so many steps of each rank below a run."""
    for rank, count in enumerate(counts):
        RankClock(str(folder), rank, 10.0).add(steps(count, seed=rank)[:, : COLUMNS - 1], 2, 1_000.0)
    return folder / "gpudiag" / "clock"


def event_file(clock: Path, rank: int = 0) -> Path:
    (found,) = (clock / f"rank-{rank}").glob("*.tfevents.*")
    return found


def test_lines_are_what_tensorboard_reads(tmp_path: Path) -> None:
    clock = clocks(tmp_path, [300])
    lines, errors = read_lines(str(clock))
    events = read_by_tensorboard(event_file(clock))
    assert not errors
    assert lines[0].step.tolist() == list(range(300))
    for column, tag in enumerate(TAGS):
        assert lines[0].values[:, column].tolist() == [one.value for one in events.Scalars(tag)]
    assert lines[0].start_s == events.Scalars(TAGS[0])[0].wall_time


@pytest.mark.slow
def test_a_line_of_two_steps_counts_twice(tmp_path: Path) -> None:
    clock = clocks(tmp_path, [FULL_LINES + 2_000])
    (found,) = read_lines(str(clock))[0].values()
    assert found.steps.sum() == FULL_LINES + 2_000
    whole_ms = steps(FULL_LINES + 2_000)[:, 1].sum()
    assert (found.values[:, 0] * found.steps).sum() == pytest.approx(whole_ms, rel=1e-6)


def test_the_newest_file_of_a_rank_is_its_job(tmp_path: Path) -> None:
    clock = clocks(tmp_path, [20])
    earlier = event_file(clock).with_name("events.out.tfevents.1.host.2")
    append_scalars(str(earlier), [(7, 1.0, {TAGS[0]: 5.0})])
    os.utime(earlier, (1, 1))
    assert len(read_lines(str(clock))[0][0].step) == 20


@with_each("cut", [1, 4, 20, 100])
def test_a_line_that_is_still_written_is_left_out(cut: int, tmp_path: Path) -> None:
    clock = clocks(tmp_path, [20])
    path = event_file(clock)
    path.write_bytes(path.read_bytes()[:-cut])
    assert len(read_lines(str(clock))[0][0].step) == 19


@with_each(
    "damage",
    [b"\xff" * 400, b"\x10" + bytes(11) + b"\xff" * 20, b"<html>" * 100],
)
def test_a_damaged_file_is_said_and_hides_no_other_rank(damage: bytes, tmp_path: Path) -> None:
    clock = clocks(tmp_path, [20, 20])
    event_file(clock, 1).write_bytes(damage)
    lines, (error,) = read_lines(str(clock))
    assert list(lines) == [0]
    assert isinstance(error, NotATrace)
    assert "rank-1" in error.where
    event_file(clock, 0).write_bytes(damage)
    with pytest.raises(NotATrace, match="no event file of a step clock"):
        read_lines(str(clock))


def test_a_clock_without_steps_says_so(tmp_path: Path) -> None:
    clock = clocks(tmp_path, [20])
    event_file(clock).write_bytes(b"")
    with pytest.raises(NothingToRead, match="no step is written yet"):
        read_lines(str(clock))


def test_values_that_no_clock_writes_are_left_out(tmp_path: Path) -> None:
    clock = clocks(tmp_path, [3])
    odd = {TAGS[0]: 5.0, TAGS[1]: float("inf"), TAGS[2]: -1.0, "<script>": 3.0}
    bad = [
        (3, 1.0, odd),
        (2, 1.0, odd),
        (-9, 1.0, odd),
        (4, 1.0, {TAGS[0]: float("nan")}),
        (1 << 60, 1.0, odd),
    ]
    append_scalars(str(event_file(clock)), bad)
    (found,) = read_lines(str(clock))[0].values()
    assert found.step.tolist() == [0, 1, 2, 3]
    assert np.isnan(found.values[-1, 1 : 1 + len(PHASES)]).all()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    clock = clocks(tmp_path / "log", [20])
    outside = clocks(tmp_path / "outside", [20])
    (clock / "rank-1").symlink_to(outside / "rank-0")
    (clock / "rank-2").mkdir()
    (clock / "rank-2" / "events.out.tfevents.1").symlink_to(event_file(outside))
    lines, errors = read_lines(str(clock), str(tmp_path / "log"))
    assert list(lines) == [0]
    assert all(isinstance(error, GpudiagError) for error in errors)


@with_each(
    ("path", "is_file"),
    [
        ("/log/run/gpudiag/clock/rank-0/events.out.tfevents.1.host.2", True),
        ("/log/run/gpudiag/clock/rank-12/now", True),
        ("/log/run/gpudiag/clock/order", True),
        ("/log/run/gpudiag/clock/rank-0/now.12.writing", False),
        ("/log/run/gpudiag/worker/events.out.tfevents.1.host.2", False),
        ("/log/run/rank-0/now", False),
    ],
)
def test_files_of_clocks_are_known_by_their_folder(path: str, is_file: bool) -> None:
    assert clock_of(path) == ("/log/run/gpudiag/clock" if is_file else "")
