"""Which ranks are to record, and why, from what ranks say of their steps."""

from __future__ import annotations

from dataclasses import replace

from tb_gpudiag.trace.step_clocks.clock_state import RankSteps
from tb_gpudiag.training.slow_steps import (
    AFTER_S,
    LATE_BLOCKS,
    MOST_A_DAY,
    PATIENT_LOOKS,
    RankWatch,
    RecordingOrder,
)
from tb_gpudiag.vocabulary.written import FORWARD, INPUT, PHASES, WAIT

STEP_MS = 100.0


def rank(number: int, late_ms: float = 0.0, core_ms: float = 0.0) -> RankSteps:
    """A rank whose input takes longer, and that waits so much less."""
    phases = [0.0] * len(PHASES)
    phases[INPUT], phases[WAIT] = 10 + late_ms, 40 - late_ms
    return RankSteps(number, 1_000, 10, STEP_MS, phases, core_ms)


def drifted(one: RankSteps, phase: int, longer_ms: float, core_ms: float = 0.0) -> RankSteps:
    longer = [0.0] * len(PHASES)
    longer[phase] = longer_ms
    return replace(one, drifts=one.drifts + 1, since=900, longer_ms=[longer_ms, *longer, core_ms])


def looks(watch: RankWatch, ranks: list[RankSteps], count: int, now_s: float = 0.0) -> list[RecordingOrder]:
    """Look again and again, each time with a new block."""
    found = (
        watch.look([replace(one, blocks=one.blocks + at) for one in ranks], now_s + at) for at in range(count)
    )
    return [order for order in found if order is not None]


def test_a_rank_that_stays_late_records_with_an_ordinary_one() -> None:
    watch, ranks = RankWatch(), [rank(0), rank(1), rank(2, late_ms=20), rank(3)]
    assert not looks(watch, ranks, LATE_BLOCKS - 1)
    (order,) = looks(RankWatch(), ranks, LATE_BLOCKS)
    assert order.ranks == [0, 2]
    assert order.why == (
        "rank 2 of 4 is late since about step 1000: its part of a step takes 20 ms longer "
        "than that of the others; 20 ms of it in waiting for the next batch (input)"
    )


def test_rank_0_records_with_the_one_in_the_middle() -> None:
    (order,) = looks(RankWatch(), [rank(0, 30), rank(1, 1), rank(2, 2), rank(3, 3)], LATE_BLOCKS)
    assert order.ranks == [0, 2]


def test_ranks_that_take_turns_in_being_late_are_left_alone() -> None:
    watch = RankWatch()
    for _ in range(20):
        for late in range(4):
            assert watch.look([rank(each, 20.0 * (each == late)) for each in range(4)], 0.0) is None


def test_the_same_lateness_is_said_once() -> None:
    watch, ranks = RankWatch(), [rank(0), rank(1, late_ms=20)]
    assert len(looks(watch, ranks, 3 * LATE_BLOCKS)) == 1
    assert not looks(watch, ranks, 3 * LATE_BLOCKS, 2 * AFTER_S)
    assert len(looks(watch, [rank(0), rank(1, late_ms=39)], 3 * LATE_BLOCKS, 4 * AFTER_S)) == 1


def test_a_rank_without_a_core_is_not_late() -> None:
    without = rank(1, late_ms=20, core_ms=15)
    assert not looks(RankWatch(), [rank(0), without], 3 * LATE_BLOCKS)
    assert not looks(RankWatch(), [drifted(rank(0), WAIT, 20), without], 2 * PATIENT_LOOKS)
    assert looks(RankWatch(), [rank(0), rank(1, late_ms=60, core_ms=30)], LATE_BLOCKS)


def test_a_rank_whose_step_is_not_longer_is_not_late() -> None:
    assert not looks(RankWatch(), [rank(0, core_ms=25), rank(1)], 3 * LATE_BLOCKS)
    (order,) = looks(RankWatch(), [rank(0, core_ms=5), rank(1, late_ms=15)], LATE_BLOCKS)
    assert order.longer_ms == 15


def test_a_rank_that_drifts_records() -> None:
    watch, one = RankWatch(), rank(0)
    assert watch.look([one], 0.0) is None
    order = watch.look([drifted(one, INPUT, 10)], 1.0)
    assert order is not None
    assert order.ranks == [0]
    assert order.since == 900
    assert order.why == (
        "steps take 11.1% longer since about step 900: 10 ms; "
        "10 ms of it in waiting for the next batch (input)"
    )
    assert watch.look([drifted(one, INPUT, 10)], 2.0) is None


def test_a_rank_that_waits_longer_is_not_blamed_for_the_one_it_waits_for() -> None:
    watch = RankWatch()
    waiting = drifted(rank(0), WAIT, 30)
    assert watch.look([waiting, rank(1)], 0.0) is None
    order = watch.look([waiting, drifted(rank(1), INPUT, 30)], 1.0)
    assert order is not None
    assert "on rank 1 of 2" in order.why
    order = RankWatch().look([waiting, rank(1, late_ms=30)], 0.0)
    assert order is not None
    assert order.why.startswith("rank 1 of 2 is late since about step 900")


def test_ranks_that_wait_for_one_that_says_nothing_are_never_recorded() -> None:
    watch, waiting = RankWatch(), [drifted(rank(each), WAIT, 30) for each in range(3)]
    assert not looks(watch, [*waiting, rank(3)], 3 * PATIENT_LOOKS)
    assert not looks(watch, [*waiting, drifted(rank(3), WAIT, 30)], 1)  # the others have settled
    assert not looks(RankWatch(), [*waiting, drifted(rank(3), INPUT, 30, core_ms=28)], 3 * PATIENT_LOOKS)


def test_ranks_that_all_wait_for_the_network_record() -> None:
    (order,) = looks(RankWatch(), [drifted(rank(0), WAIT, 30), drifted(rank(1), WAIT, 30)], PATIENT_LOOKS)
    assert order.why == (
        "steps on all 2 ranks take 42.9% longer since about step 900: 30 ms; "
        "30 ms of it in waiting for other ranks (wait)"
    )
    assert order.ranks == [0, 1]


def test_a_small_recording_does_not_hide_a_large_drift_after_it() -> None:
    watch = RankWatch()
    small = drifted(rank(0), INPUT, 4)
    assert watch.look([small], 0.0) is not None
    same = drifted(small, FORWARD, 6)
    assert watch.look([same], 1.0) is None
    assert watch.look([drifted(same, FORWARD, 20)], 2.0) is not None


def test_a_busy_machine_is_not_recorded() -> None:
    watch = RankWatch()
    assert watch.look([drifted(rank(0), INPUT, 30, core_ms=20)], 0.0) is None
    assert watch.look([drifted(rank(0), INPUT, 30)], 1.0) is None  # the same drift


def test_more_work_on_a_busy_machine_is_recorded() -> None:
    """It waits for a core most of the time, like the work that was there before."""
    one = replace(rank(0), step_ms=400.0, core_ms=340.0)
    assert RankWatch().look([drifted(one, FORWARD, 220, core_ms=195)], 0.0) is not None
    assert RankWatch().look([drifted(one, FORWARD, 220, core_ms=210)], 0.0) is None


def test_recordings_are_few() -> None:
    watch, one = RankWatch(), rank(0)
    orders = 0
    for number in range(20):
        one = drifted(one, INPUT, 10)
        orders += watch.look([one], number * AFTER_S) is not None
        assert watch.look([one], number * AFTER_S + 1) is None
        one = drifted(one, INPUT, 10)
        assert watch.look([one], number * AFTER_S + 2) is None
    assert orders == MOST_A_DAY
