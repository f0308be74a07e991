"""Steps that get slower are found, with their step and phase; noise, patterns and spikes are not."""

from __future__ import annotations

import numpy as np
import pytest

from tb_gpudiag.arrays import Float64
from tb_gpudiag.training.slow_steps import BLOCK_STEPS, HELD_LOOKS, StepDrift, StepDrifts
from tb_gpudiag.vocabulary.written import CORE, FIRST_PHASE

INPUT, FORWARD, BACKWARD, WAIT, OPTIMIZER = range(2, 7)
COLUMNS = 10
STEP_MS, BLOCK_S = 100.0, 10.0
IN_BLOCK = round(BLOCK_S * 1e3 / STEP_MS)
OF_DAY = 864_000
SPIKE_EVERY, SPIKE_MS = 1_000, 3_000.0  # checkpoints


def steps(count: int, *, noise: float = 0.05, daily: float = 0.03, seed: int = 0) -> Float64:
    """Rows of steps with noise, a daily pattern that starts at any time, and checkpoints."""
    generator = np.random.default_rng(seed)
    at = np.arange(count)
    pattern = 1 + daily * np.sin(2 * np.pi * (at / OF_DAY + generator.random()))
    work = STEP_MS * pattern * np.exp(generator.normal(0, noise, count))
    rows = np.zeros((count, COLUMNS))
    rows[:, 0], rows[:, 1] = at, work
    rows[:, [INPUT, FORWARD, BACKWARD, OPTIMIZER]] = work[:, None] * [0.05, 0.3, 0.5, 0.1]
    rows[SPIKE_EVERY - 1 :: SPIKE_EVERY, [1, 8]] += SPIKE_MS
    return rows


def slowed(rows: Float64, more_ms: Float64 | float, phase: int) -> Float64:
    found = rows.copy()
    found[:, 1] += more_ms
    found[:, phase] += more_ms
    return found


def drifts_in(rows: Float64) -> list[tuple[int, StepDrift]]:
    """Return each drift, and at which step it was found."""
    drifts, found = StepDrifts(BLOCK_S), []
    for start in range(0, len(rows), IN_BLOCK):
        part = rows[start : start + IN_BLOCK]
        drift = drifts.add(part)
        if drift is not None:
            found.append((int(part[-1, 0]), drift))
    return found


@pytest.mark.slow
def test_a_step_that_takes_longer_from_once_on_is_found_with_its_phase() -> None:
    rows = steps(12_000)
    at = 8_000
    rows[at:] = slowed(rows[at:], 0.05 * STEP_MS, INPUT)
    ((found_at, drift),) = drifts_in(rows)
    assert at < found_at < at + 20 * IN_BLOCK
    assert abs(drift.since - at) <= 3 * IN_BLOCK
    assert int(np.argmax(drift.longer_ms[1:])) + 2 == INPUT
    assert drift.longer_ms[0] == pytest.approx(5, rel=0.3)


@pytest.mark.slow
def test_steps_that_take_longer_little_by_little_are_found() -> None:
    rows = steps(60_000)
    ramp = np.clip((np.arange(len(rows)) - 10_000) / 20_000, 0, 1) * 0.12 * STEP_MS
    found = drifts_in(slowed(rows, ramp, OPTIMIZER))
    assert found
    assert all(drift.gradual for _, drift in found[:1])
    assert int(np.argmax(found[0][1].longer_ms[1:])) + 2 == OPTIMIZER
    assert found[0][0] < 40_000


def test_faster_steps_and_short_stretches_of_slow_ones_are_no_drift() -> None:
    rows = steps(12_000)
    rows[6_000:] = slowed(rows[6_000:], -0.1 * STEP_MS, FORWARD)
    rows[9_000:9_100] = slowed(rows[9_000:9_100], STEP_MS, INPUT)
    assert not drifts_in(rows)


def test_steps_that_have_no_core_are_no_drift() -> None:
    rows = steps(12_000)
    rows[6_000:] = slowed(rows[6_000:], 0.2 * STEP_MS, FORWARD)
    rows[6_000:, CORE] = 0.2 * STEP_MS
    assert not drifts_in(rows)


def test_steps_that_get_a_core_and_take_no_longer_are_no_drift() -> None:
    """Other processes end, and slowed the work down as well: it has a core for longer, in shorter steps."""
    rows = steps(12_000)
    rows[:6_000, CORE] = 0.5 * STEP_MS
    rows[6_000:, 1] *= 0.8
    assert not drifts_in(rows)


def test_phases_of_a_few_steps_are_enough() -> None:
    rows, at = steps(12_000), 8_000
    rows[at:] = slowed(rows[at:], 0.05 * STEP_MS, INPUT)
    rows[np.arange(len(rows)) % 7 > 0, FIRST_PHASE:CORE] = np.nan
    ((_, drift),) = drifts_in(rows)
    assert int(np.argmax(drift.longer_ms[1:])) + 2 == INPUT
    assert drift.longer_ms[1:].max() == pytest.approx(5, rel=0.3)


def test_noise_of_a_fifth_is_no_drift() -> None:
    assert not drifts_in(steps(30_000, noise=0.2))


def test_long_steps_make_blocks_of_enough() -> None:
    drifts = StepDrifts(BLOCK_S)
    rows = steps(10 * BLOCK_STEPS, noise=0.0)
    rows[:, 1:] *= 100  # 10 s
    drifts.add(rows)
    assert drifts.blocks == 10


@pytest.mark.slow
def test_what_is_kept_does_not_grow() -> None:
    drifts = StepDrifts(BLOCK_S)
    for part in np.split(steps(200_000), 100):
        drifts.add(part)
    kept = [len(blocks) for blocks in drifts._levels]
    assert max(kept) <= 24
    assert HELD_LOOKS < 24


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_day_has_at_most_one_drift(seed: int) -> None:
    assert len(drifts_in(steps(OF_DAY, seed=seed, noise=0.1))) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_drift_of_a_twentieth_is_found_within_minutes_of_a_day(seed: int) -> None:
    rows, at = steps(OF_DAY, seed=seed), 400_000
    rows[at:] = slowed(rows[at:], 0.05 * STEP_MS, INPUT)
    found = [(found_at, drift) for found_at, drift in drifts_in(rows) if found_at >= at]
    found_at, drift = found[0]
    assert found_at - at < 6_000
    assert int(np.argmax(drift.longer_ms[1:])) + 2 == INPUT
