"""Schedules and bubbles against ideal timelines, whose bubbles are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tb_gpudiag.jobs.ranks.channels import Channel, Channels
from tests.jobs.ranks.pipelines import BACKWARD_MS, FORWARD_MS, Order, gpipe, one_f_one_b, pipeline
from tests.jobs.ranks.stage import MS, facts_of, job
from tests.with_each import with_each

STEPS = 4
Schedule = Callable[[int, int, int], Order]


@pytest.mark.slow
@with_each(("order", "name"), [(gpipe, "GPipe"), (one_f_one_b, "1F1B")])
@with_each("marks", [True, False])
@with_each(("depth", "batches"), [(2, 4), (4, 4), (4, 8)])
def test_the_bubble_of_an_ideal_timeline_is_that_of_the_formula(
    order: Schedule, name: str, marks: bool, depth: int, batches: int
) -> None:
    found = facts_of(pipeline(order, depth, batches, STEPS, marks=marks)).pipeline
    assert found is not None
    assert (found.schedule, found.named) == (name, marks)
    assert (found.depth, found.batches, found.chunks) == (depth, batches, 1)
    assert found.ideal_share == (depth - 1) / (batches + depth - 1)
    for stage in found.stages:
        assert stage.warm_up_ns == STEPS * stage.stage * FORWARD_MS * MS
        # The last step's drain is not recorded: nothing is received after it.
        assert stage.drain_ns == (STEPS - 1) * stage.stage * BACKWARD_MS * MS
        rest = (depth - 1) * (FORWARD_MS + BACKWARD_MS) - stage.stage * (FORWARD_MS + BACKWARD_MS)
        assert stage.between_ns == STEPS * rest * MS
        assert stage.computing_ns == STEPS * batches * (FORWARD_MS + BACKWARD_MS) * MS


def test_a_slow_stage_computes_more_and_waits_less() -> None:
    found = facts_of(pipeline(one_f_one_b, 4, 8, slow=2)).pipeline
    assert found is not None
    slowest = max(found.stages, key=lambda one: one.computing_ns)
    assert slowest.stage == 2
    assert slowest.bubble_ns == min(one.bubble_ns for one in found.stages)
    assert found.ideal_share is not None
    assert found.bubble_share > found.ideal_share


def test_one_micro_batch_shows_no_schedule() -> None:
    found = facts_of(pipeline(gpipe, 2, 1)).pipeline
    assert found is not None
    assert (found.schedule, found.ideal_share) == ("", None)


def test_a_job_without_messages_has_no_pipeline() -> None:
    assert facts_of(job(4, 5)).pipeline is None


def ring(back: bool) -> Channels:
    """Three ranks send to the next one, the last one to the first, and, if `back`, to the one before."""
    pairs = [(0, 1), (1, 2), (2, 0), *([(1, 0)] if back else [])]
    return Channels(np.zeros(0, np.int32), [Channel("", pair, 2, pair) for pair in pairs])


def test_keys_that_go_round_the_ranks_are_no_pipeline() -> None:
    assert (ring(back=False).is_ring, ring(back=False).is_pipeline) == (True, False)
    assert (ring(back=True).is_ring, ring(back=True).is_pipeline) == (False, True)
