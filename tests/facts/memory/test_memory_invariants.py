"""Invariants of memory on events that contradict one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.shared.growth import until_full
from tb_gpudiag.trace.events import MemoryEvents, Trace
from tb_gpudiag.vocabulary.recorded import MemoryAction
from tests.builder import TraceBuilder
from tests.facts import facts_of
from tests.facts.invariants import assert_invariants

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def six_steps() -> Trace:
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(6):
        main.step(step, at=100 * step, us=100).op("aten::mm", at=100 * step + 10, us=80)
    main.alloc(512, at=1)
    return facts_of(trace).trace


@st.composite
def wild_memory(draw: st.DrawFn) -> MemoryEvents:
    """Draw memory events that contradict one another."""
    count = draw(st.integers(1, 40))

    def column(values: Sequence[int], kind: type) -> npt.NDArray[Any]:
        return np.array(draw(st.lists(st.sampled_from(values), min_size=count, max_size=count)), kind)

    action = column(list(MemoryAction), np.uint8)
    falls = np.isin(action, (MemoryAction.FREE, MemoryAction.SHRINK))
    return MemoryEvents(
        time_ns=np.sort(column(range(0, 600_000, 7_000), np.int64)),
        action=action,
        bytes=np.where(falls, -1, 1) * column([0, 512, 1024, 2**40], np.int64),
        address=column(range(4), np.uint64),
        device_type=column([0, 1], np.int32),
        device=column([-1, 0, 1], np.int32),
        allocated=column([-5, -1, 0, 512, 4096], np.int64),
        reserved=column([-1, 0, 8192], np.int64),
        thread=column([0, -1], np.int32),
        stack=column([0, -1], np.int32),
        stacks=["train.py(3): main"],
        found=column([0, 1], np.bool_) if draw(st.booleans()) else None,
        purpose=column(range(8), np.uint8) if draw(st.booleans()) else None,
    )


@given(wild_memory())
@settings(deadline=None)
def test_invariants_on_any_memory_events(six_steps: Trace, memory: MemoryEvents) -> None:
    facts = Facts(replace(six_steps, memory=memory))
    assert_invariants(facts)
    for one in facts.memory:
        assert all(site.per_unit > 0 for site in one.sites)
        assert one.reserve.most_unused_bytes >= one.reserve.unused_at_peak_bytes >= 0
        assert until_full(one) >= 0
