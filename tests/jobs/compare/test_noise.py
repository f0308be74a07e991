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


@pytest.mark.parametrize(("times", "verdict"), [(4.0, CANNOT_TELL), (5.0, SLOWER)])
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


@pytest.mark.slow
def test_two_recordings_a_side_tell_ten_percent() -> None:
    """Recordings that scatter by 1%, of steps that scatter by as much."""
    generator = np.random.default_rng(3)

    def recorded(us: int, number: int) -> Digest:
        steps = us * (1 + 0.01 * generator.normal()) * (1 + 0.01 * generator.normal(size=10))
        rounded = np.rint(steps).astype(int).tolist()
        return trace(rounded, f"{us}{number}", device_name="", devices=0, origin_ns=number)

    sides = [[[recorded(us, number) for number in (0, 1)] for us in (10_000, 11_000)] for _ in range(40)]
    assert [compare(*both).verdict for both in sides].count(SLOWER) >= 36


@with_each(
    ("slow", "verdict"),
    [
        ((4, 2), CANNOT_TELL),  # beside another process, of which one recording had more
        ((3, 3), SLOWER),
    ],
)
def test_slow_steps_show_in_the_means_of_recordings_only_if_these_agree(
    slow: tuple[int, int], verdict: int
) -> None:
    def recorded(count: int, number: int) -> Digest:
        steps = [1000] * (10 - count) + [3000] * count
        return trace(steps, f"{count}{number}", device_name="", devices=0, origin_ns=number)

    base = [recorded(0, number) for number in (0, 1)]
    candidate = [recorded(count, number + 2) for number, count in enumerate(slow)]
    assert compare(base, candidate).verdict == verdict


def calls(count: int, each_ns: int = 10_000) -> list[dict[str, Any]]:
    return [
        {"operator": f"aten::{i}", "path": "", "count": count, "host_ns": count * each_ns} for i in range(8)
    ]


def test_more_calls_of_operators_show_in_two_recordings_what_noise_would_hide() -> None:
    base = [on_cpu(us, f"a{us}", origin_ns=us, operators=calls(800)) for us in (8_000, 8_400)]
    more = [on_cpu(us, f"b{us}", origin_ns=us, operators=calls(880)) for us in (8_800, 9_300)]
    same = [on_cpu(us, f"b{us}", origin_ns=us, operators=calls(800)) for us in (8_800, 9_300)]
    assert compare(base, more).verdict == SLOWER
    assert compare(base, same).verdict == CANNOT_TELL


def test_more_calls_show_whatever_else_the_machine_does() -> None:
    """Equal calls take twice as long in one recording of the base, and half as long in the candidate."""
    base = [
        on_cpu(us, f"a{us}", origin_ns=us, operators=calls(800, ns))
        for us, ns in ((8_000, 8_000), (16_000, 16_000))
    ]
    more = [on_cpu(us, f"b{us}", origin_ns=us, operators=calls(880, 4_000)) for us in (4_400, 4_600)]
    found = compare(base, more)
    assert found.verdict == SLOWER
    assert "“aten::0” 110 instead of 100 times" in found.sentence.replace("\u00a0", " ")
    less = [on_cpu(us, f"c{us}", origin_ns=us, operators=calls(720, 4_000)) for us in (3_600, 3_700)]
    assert compare(base, less).verdict == FASTER


def test_calls_that_differ_between_recordings_of_one_side_show_nothing() -> None:
    base = [on_cpu(8_000 + at, f"a{at}", origin_ns=at, operators=calls(800 + 80 * at)) for at in (0, 1)]
    more = [on_cpu(9_000 + at, f"b{at}", origin_ns=at, operators=calls(880)) for at in (2, 900)]
    assert compare(base, more).verdict == CANNOT_TELL


def test_what_was_measured_is_said_apart_from_what_it_means() -> None:
    base = on_cpu(10_200, "a", operators=calls(800))
    found = compare([base], [on_cpu(11_300, "b", operators=calls(800))])
    assert found.verdict == CANNOT_TELL
    sentence = found.sentence.replace("\u00a0", " ")
    assert sentence.startswith("The candidate's steps took 10.8% longer: 11.3 ms per step instead of 10.2 ms")
    assert "record each side twice" in sentence
    assert "Both sides call the same operators equally often." in sentence
    found = compare([base], [on_cpu(11_300, "b", operators=calls(880))])
    assert "“aten::0” 110 instead of 100 times" in found.sentence.replace("\u00a0", " ")
