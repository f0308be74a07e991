"""Which steps have their phases timed, by what that costs."""

from __future__ import annotations

from tb_gpudiag.training.step_phases import AROUND, LOOK_EVERY, SHARE, STRIDES, PhaseSampling
from tests.with_each import with_each


def sampled(own_us: float, step_us: float) -> PhaseSampling:
    found = PhaseSampling()
    for _ in range(LOOK_EVERY):
        found.add(round(own_us * 1e3), round(step_us * 1e3))
    return found


@with_each(("own_us", "step_us"), [(30, 100_000), (30, 9_000), (20, 800), (20, 3_000)])
def test_timing_costs_its_share_of_the_steps_at_most(own_us: float, step_us: float) -> None:
    stride = sampled(own_us, step_us).stride
    assert AROUND * own_us / stride <= SHARE * step_us
    smaller = [each for each in STRIDES if each < stride]
    assert not smaller or AROUND * own_us / smaller[-1] > SHARE * step_us


def test_all_of_long_steps_are_timed_and_of_the_shortest_some() -> None:
    assert not any(sampled(30, 100_000).untimed(step) for step in range(100))
    assert sum(not sampled(30, 50).untimed(step) for step in range(10 * STRIDES[-1])) == 10


def test_one_slow_step_changes_nothing() -> None:
    found = sampled(30, 100_000)
    for _ in range(LOOK_EVERY - 1):
        found.add(30_000, 100_000_000)
    found.add(30_000_000, 100_000)
    assert found.stride == 1


def test_the_stride_follows_the_steps() -> None:
    found = sampled(30, 100_000)
    for _ in range(LOOK_EVERY):
        found.add(30_000, 1_000_000)
    assert found.stride > 1
    for _ in range(LOOK_EVERY):
        found.add(30_000, 100_000_000)
    assert found.stride == 1
