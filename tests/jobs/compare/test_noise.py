"""Equal code is neither faster nor slower: noise between recordings, and machines that change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.jobs.compare.noise import ONE_ON_CPU, RANKS_ON_CPU
from tb_gpudiag.report import report_pb2 as pb
from tests.jobs.compare.sides import trace
from tests.with_each import with_each

FASTER, SLOWER, SAME, CANNOT_TELL = (
    pb.Comparison.FASTER,
    pb.Comparison.SLOWER,
    pb.Comparison.SAME,
    pb.Comparison.CANNOT_TELL,
)


def on_cpu(us: float, id: str, **more: Any) -> Digest:
    return trace([round(us)] * 8, id, device_name="", devices=0, **more)


def several(us: Sequence[float], id: str) -> list[Digest]:
    return [on_cpu(each, f"{id}{number}", origin_ns=number) for number, each in enumerate(us)]


@with_each(
    ("base", "candidate", "verdict"),
    [
        (1000, 1000 * (1 + 0.9 * ONE_ON_CPU), CANNOT_TELL),
        (1000, 1000 / (1 + 0.9 * ONE_ON_CPU), CANNOT_TELL),
        (1000, 1000 * (1 + 1.1 * ONE_ON_CPU), SLOWER),
        (1000, 1000 / (1 + 1.1 * ONE_ON_CPU), FASTER),
    ],
)
def test_one_recording_a_side_on_a_cpu_shows_large_differences_only(
    base: float, candidate: float, verdict: int
) -> None:
    found = compare([on_cpu(base, "a")], [on_cpu(candidate, "b")])
    assert found.verdict == verdict
    assert ("record each side twice" in found.sentence) is (verdict == CANNOT_TELL)


@pytest.mark.parametrize(("times", "verdict"), [(2.5, CANNOT_TELL), (3.5, SLOWER)])
def test_steps_that_vary_show_a_busy_machine(times: float, verdict: int) -> None:
    busy = [1000, 1000, 3000, 1000, 3000, 3000, 1000, 3000]
    base = trace(busy, "a", device_name="", devices=0)
    candidate = trace([round(times * us) for us in busy], "b", device_name="", devices=0)
    found = compare([base], [candidate])
    assert found.verdict == verdict
    assert ("as on a busy machine" in found.sentence) is (verdict == CANNOT_TELL)


@with_each(
    ("computing", "candidate", "verdict"),
    [
        (0.99, 900, FASTER),
        (0.5, 850, CANNOT_TELL),  # half of the step is the host's, and half of that may be noise
        (0.5, 700, FASTER),
    ],
)
def test_a_gpu_that_waits_for_the_host_has_the_noise_of_the_host(
    computing: float, candidate: int, verdict: int
) -> None:
    base = trace([1000] * 8, "a", computing=computing)
    found = compare([base], [trace([candidate] * 8, "b", computing=computing)])
    assert found.verdict == verdict
    assert ("the host decides" in found.sentence) is (verdict == CANNOT_TELL)


def test_what_the_candidate_no_longer_waits_for_is_no_noise() -> None:
    base = trace([1000] * 8, "a", computing=0.8)
    assert compare([base], [trace([850] * 8, "b", computing=800 / 850)]).verdict == FASTER


def test_a_simulated_host_has_no_noise() -> None:
    sides = [trace([us] * 8, str(us), computing=0.5, simulated=True) for us in (1000, 950)]
    assert compare(sides[:1], sides[1:]).verdict == FASTER


def test_on_a_cpu_the_mean_of_one_recording_shows_nothing() -> None:
    slow_once = trace([*[1000] * 7, 30_000], "b", device_name="", devices=0)
    assert compare([on_cpu(1000, "a")], [slow_once]).verdict == CANNOT_TELL


def test_ranks_that_share_a_cpu_need_a_larger_difference() -> None:
    def job(us: float, id: str) -> list[Digest]:
        return [on_cpu(us, f"{id}{rank}", rank=rank, world_size=2) for rank in range(2)]

    assert compare(job(1000, "a"), job(1000 * (1 + 0.9 * RANKS_ON_CPU), "b")).verdict == CANNOT_TELL
    assert compare(job(1000, "a"), job(1000 * (1 + 1.1 * RANKS_ON_CPU), "b")).verdict == SLOWER


def test_two_calm_recordings_a_side_show_a_small_difference() -> None:
    assert compare(several([1000, 1005], "a"), several([1055, 1050], "b")).verdict == SLOWER


def test_two_recordings_a_side_show_their_noise() -> None:
    found = compare(several([1000, 1030], "a"), several([1080, 1075], "b"))
    assert found.verdict == CANNOT_TELL
    assert "recordings of one side differ by 3.0%" in found.sentence.replace("\u00a0", " ")


@pytest.mark.slow
def test_four_noisy_recordings_a_side_show_a_small_difference() -> None:
    draws = np.array([[1000], [1050]]) * (1 + 0.01 * np.random.default_rng(2).normal(size=(50, 2, 4)))
    found = [compare(several(base, "a"), several(candidate, "b")).verdict for base, candidate in draws]
    assert found.count(SLOWER) >= 45


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_two_recordings_a_side_of_equal_code_are_rarely_told_apart(noise: float) -> None:
    draws = 1000 * (1 + noise * np.random.default_rng(1).normal(size=(200, 2, 2)))
    found = [compare(several(base, "a"), several(candidate, "b")).verdict for base, candidate in draws]
    assert found.count(FASTER) + found.count(SLOWER) <= 4


def test_two_equal_recordings_a_side_are_the_same() -> None:
    assert compare(several([1000, 1004], "a"), several([1003, 1001], "b")).verdict == SAME


def kernels(us: float, count: int = 8) -> list[dict[str, Any]]:
    return [
        {
            "name": f"gemm_{number}",
            "operator": f"aten::{number}",
            "shapes": "[[64,64],[64,64]]",
            "count": count,
            "time_ns": round(count * us * 1_000 * (number + 1)),
        }
        for number in range(4)
    ]


def test_a_slower_machine_is_no_slower_code() -> None:
    base, candidate = (
        trace([1000] * 8, "a", kernels=kernels(100)),
        trace([1200] * 8, "b", kernels=kernels(118)),
    )
    found = compare([base], [candidate])
    assert found.verdict == CANNOT_TELL
    assert "equal operators took 1.18 times as long" in found.sentence.replace("\u00a0", " ")


@pytest.mark.parametrize(("slower", "verdict"), [(8, CANNOT_TELL), (2, SLOWER)])
def test_operators_that_compute_nothing_show_a_slower_cpu(slower: int, verdict: int) -> None:
    def operators(us: float, number: int) -> list[dict[str, Any]]:
        return [
            {
                "operator": f"aten::{i}",
                "path": "",
                "count": 800,
                "host_ns": 800_000 * (us if i < number else 10),
            }
            for i in range(8)
        ]

    base = on_cpu(10_000, "a", operators=operators(10, 8))
    candidate = on_cpu(17_000, "b", operators=operators(17, slower))
    assert compare([base], [candidate]).verdict == verdict


def test_more_of_equal_operators_is_slower_code() -> None:
    base, candidate = (
        trace([1000] * 8, "a", kernels=kernels(100)),
        trace([1200] * 8, "b", kernels=kernels(100, count=10)),
    )
    assert compare([base], [candidate]).verdict == SLOWER


def test_a_difference_beyond_the_machine_is_one() -> None:
    base, candidate = (
        trace([4000] * 8, "a", kernels=kernels(100)),
        trace([1000] * 8, "b", kernels=kernels(90)),
    )
    assert compare([base], [candidate]).verdict == FASTER
