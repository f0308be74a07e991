"""Memory that grows over recordings, and memory that does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tb_gpudiag.facts.memory.floor import MOST_FLOORS
from tb_gpudiag.jobs.history.run_history import histories
from tb_gpudiag.report import report_pb2 as pb
from tests.jobs.history.runs import EVERY, START_NS, recording
from tests.with_each import with_each

MB = 1 << 20
GB = 1 << 30


def drifts(floors: list[list[int]], device: str = "GPU 0", capacity: int = 0, **more: Any) -> list[pb.Drift]:
    made = [
        recording(number, floors=each, device=device, capacity=capacity, **more)
        for number, each in enumerate(floors)
    ]
    (history,) = histories(made)
    return list(history.drifts)


def noisy(sizes: np.ndarray[tuple[int], np.dtype[np.float64]], seed: int, noise: float) -> list[list[int]]:
    """Floors of six steps around each size, with noise of each step and of each recording."""
    generator = np.random.default_rng(seed)
    return [
        [int(size + own + each) for each in generator.normal(0, noise, 6)]
        for size, own in zip(sizes, generator.normal(0, noise, len(sizes)), strict=True)
    ]


def test_a_leak_too_slow_for_one_recording() -> None:
    """2 KiB per step: within a recording it is a hundredth of the noise, over 40 recordings 80 MB."""
    per_step = 2048
    sizes = GB + per_step * EVERY * np.arange(40.0)
    (found,) = drifts(noisy(sizes, 1, 1 * MB), capacity=2 * GB)
    assert found.low_bytes_per_hour < per_step * EVERY * 60 < found.high_bytes_per_hour
    assert found.bytes_per_step == pytest.approx(per_step, rel=0.1)
    assert found.points == 40
    assert found.hours == pytest.approx(39 / 60)
    assert found.hours_until_full == pytest.approx(
        (GB - 39 * per_step * EVERY) / (per_step * EVERY * 60), rel=0.1
    )
    assert "GPU 0 memory grows by" in found.sentence
    assert "over 40 recordings" in found.sentence


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 5, 6, 12, 40])
def test_noise_is_no_drift(count: int) -> None:
    found = sum(bool(drifts(noisy(np.full(count, float(GB)), seed, 20 * MB))) for seed in range(20))
    assert found <= 1


@pytest.mark.slow
def test_a_cache_that_fills_is_no_drift() -> None:
    sizes = GB + 100 * MB * np.minimum(np.arange(40.0), 10)
    assert not drifts(noisy(sizes, 1, MB))


@pytest.mark.slow
def test_a_change_of_the_floor_is_no_drift() -> None:
    sizes = GB + 500 * MB * (np.arange(40) >= 20).astype(np.float64)
    floors = noisy(sizes, 1, MB)
    assert not drifts(floors)
    (history,) = histories([recording(number, floors=each) for number, each in enumerate(floors)])
    assert [(change.what, change.point) for change in history.changes] == [(pb.Change.memory, 20)]


def test_falling_memory_is_no_drift() -> None:
    assert not drifts(noisy(GB - 10 * MB * np.arange(40.0), 1, MB))


@pytest.mark.slow
def test_memory_that_will_never_be_full_is_no_drift() -> None:
    sizes = GB + 0.1 * MB * np.arange(40.0)
    assert drifts(noisy(sizes, 1, 1000))
    assert not drifts(noisy(sizes, 1, 1000), capacity=80_000 * GB)


def test_a_job_that_was_started_again_begins_again() -> None:
    """Each process grows; together the floors are a saw."""
    sizes = GB + 10 * MB * np.r_[np.arange(20.0), np.arange(20.0)]
    made = [
        recording(number, floors=each, pid=1 + number // 20)
        for number, each in enumerate(noisy(sizes, 1, MB))
    ]
    (history,) = histories(made)
    (found,) = history.drifts
    assert found.points == 20
    assert found.bytes_per_hour == pytest.approx(600 * MB, rel=0.1)
    assert any("started again" in note for note in history.notes)


def test_the_same_leak_in_each_of_two_recordings() -> None:
    """The CPU's memory is only counted while a profiler runs: the slopes of the recordings are joined."""
    floors = [[0, 13_000, 19_464], [70_000, 83_000, 89_464]]
    (found,) = drifts(floors, device="CPU")
    assert found.bytes_per_step == pytest.approx(6464)
    assert found.bytes_per_hour == pytest.approx(6464 * EVERY * 60)
    assert found.low_bytes_per_hour == found.high_bytes_per_hour


def test_what_no_recording_can_tell_from_a_full_buffer_is_no_drift() -> None:
    floors = [[0, 13_000, 19_464], [70_000, 83_000, 89_464]]
    assert not drifts(floors, device="CPU", unchecked={"GD405": "a full buffer looks the same"})


def test_recordings_of_less_than_a_minute_have_no_rate_per_hour() -> None:
    made = [
        recording(number, floors=floors, device="CPU", at_ns=START_NS + number * 10**9)
        for number, floors in enumerate([[0, 13_000, 19_464], [70_000, 83_000, 89_464]])
    ]
    (found,) = histories(made)[0].drifts
    sentence = found.sentence.replace("\u00a0", " ")
    assert sentence == "CPU memory grows by 6.31 KiB per step (2 recordings; too short for a rate per hour)."


@with_each(
    "floors",
    [
        [[0, 6_536, 6_536], [40_556, 47_092, 47_092]],  # what the profiler keeps is counted in the next one
        [[0, 0, 90_000], [0, 0, 10_000]],  # batches of different sizes
        [[0, 9_000, 1_000], [0, 1_000, 9_000]],
        [[0, 1_000, 2_000], [0, 1_000, 2_000]],  # less than is worth a word
        [[0], [10_000]],
        # A cache of four slots of 256 KiB that are replaced in turn, filled before each recording.
        [[size * 262_144 for size in (1, 2, 3, 4, 4, 4)]] * 2,
    ],
)
def test_recordings_of_the_cpu_without_a_leak(floors: list[list[int]]) -> None:
    assert not drifts(floors, device="CPU")


def test_recordings_without_a_time_do_not_drift() -> None:
    sizes = GB + 10 * MB * np.arange(40.0)
    assert not drifts(noisy(sizes, 1, MB), at_ns=0)


@pytest.mark.slow
def test_many_recordings_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_FLOORS <= 2000
    monkeypatch.setattr("tb_gpudiag.jobs.history.recordings.MOST_FLOORS", 40)
    sizes = GB + MB * np.arange(50.0)
    (found,) = drifts([[int(size), int(size)] for size in sizes])
    assert found.points == 40
