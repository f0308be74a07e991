"""Lost time without the time that earlier findings claim."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tb_gpudiag.facts.core.intervals import intersect, union
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.shared.lost_time import lost_time
from tests.builder import HostThread, TraceBuilder
from tests.facts import facts_of
from tests.facts.any_traces import any_traces
from tests.rules.stage import facts_of as staged
from tests.rules.stage import one_gap

pairs = st.lists(st.tuples(st.integers(0, 400_000), st.integers(0, 400_000)), max_size=5)


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_traces(), pairs)
def test_claimed_time_is_not_lost_again(trace: TraceBuilder, spans: list[tuple[int, int]]) -> None:
    facts = facts_of(trace)
    device = facts.device
    if device is None:
        return
    claimed = union(np.array([a for a, _ in spans], np.int64), np.array([b for _, b in spans], np.int64))
    all_of_it, left = (
        lost_time(facts),
        lost_time(facts, {device.id: claimed}),
    )
    everything = np.ones(len(all_of_it.start_ns), np.bool_)
    idle = all_of_it.stretches(everything)
    assert int(left.length_ns.sum()) == idle.total - intersect(idle, claimed).total
    assert ((left.drained_ns >= 0) & (left.drained_ns <= left.length_ns)).all()
    assert int(left.drained_ns.sum()) <= int(all_of_it.drained_ns.sum())


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_traces())
def test_costs_never_add_up_to_more_than_the_window(trace: TraceBuilder) -> None:
    facts = facts_of(trace)
    outcome = run_rules(facts, RULES)
    claimed = sum(claim.total for found in outcome.findings for claim in found.finding.claims.values())
    assert claimed <= facts.window.duration_ns
    assert not [answer.reason for _, answer in outcome.unchecked if answer.reason.startswith("could not")]


def _item_then_python(main: HostThread, at: float, us: float) -> object:
    return main.sync(at=at, us=102).frame("train.py(9): log", at=at + 102, us=us - 102)


def test_there_is_no_finding_if_unclaimed_time_is_under_the_threshold(tmp_path: Path) -> None:
    """The host is blocked for 100 µs and then late by 130: GD301 claims 100 of them, and Python the rest."""
    facts: Facts = staged(one_gap(_item_then_python, 130), tmp_path)
    costs = {found.rule.id: found.finding.cost_ns for found in run_rules(facts, RULES).findings}
    assert "GD301" in costs
    assert "GD102" not in costs
