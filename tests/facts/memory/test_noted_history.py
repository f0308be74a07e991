"""Memory of Python's tensors as a job went on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tb_gpudiag.facts.memory.noted_history import steady_rate
from tests.with_each import with_each

STEPS = (0, 1, 2, 4, 8, 16, 32, 40, 52)


def history(held: Callable[[int], int], steps: tuple[int, ...] = STEPS) -> list[tuple[int, int]]:
    return [(step, held(step)) for step in steps]


@with_each(
    ("held", "rate"),
    [
        (lambda step: 1000 + 10 * step, 10),
        (lambda step: 1000 + 60 * (step // 6), 10),  # an episode ends every six steps
        (lambda step: 80 * (step // 8 + 1), 10),  # room for eight steps at a time
        (lambda step: 1000 + 10 * step + 5 * (step % 2), 10),  # batches of two sizes
        (lambda _: 1000, 0),
        (lambda step: 1000 - 10 * step, 0),
        (lambda step: 10 * min(step, 30), 0),  # it is full
        (lambda step: 10 * min(step, 46), 0),  # it becomes full in the recording
        (lambda step: 10 * (step % 30), 0),  # it is cleared
        (lambda step: 10 * max(0, step - 30), 0),  # it has begun late
        (lambda step: 1000 * (1 + step) ** 2, 0),
    ],
)
def test_steady_growth_goes_on_from_the_beginning(held: Callable[[int], int], rate: float) -> None:
    assert steady_rate(history(held)) == pytest.approx(rate, rel=0.3)


LOOKS = (4, 8, 12, 16, 21, 33)
"""When a recording of twelve steps from the 22nd on is noted."""


@with_each("phase", range(5))
def test_what_each_fifth_step_keeps_is_steady(phase: int) -> None:
    assert steady_rate(history(lambda step: 50 * ((step + phase) // 5), LOOKS)) == pytest.approx(10, rel=0.3)


@with_each("room", [4, 8, 12, 18, 21, 25])
def test_a_buffer_that_has_become_full_is_not_steady(room: int) -> None:
    assert steady_rate(history(lambda step: 10 * min(step, room), LOOKS)) == 0


@with_each("steps", [(), (0,), (1, 2, 3, 4), (1, 40, 52)])
def test_few_points_are_no_history(steps: tuple[int, ...]) -> None:
    assert steady_rate(history(lambda step: 10 * step, steps)) == 0
