"""A trace leaves memory with its facts."""

from __future__ import annotations

import gc
import weakref

from tests.builder import TraceBuilder
from tests.facts import facts_of


def test_facts_end_with_their_last_use() -> None:
    """Whoever reads many traces, one by one, has one in memory: no garbage collection is needed."""
    trace = TraceBuilder()
    main = trace.thread()
    main.op("aten::mm", at=0, us=50)
    main.launch("gemm", at=5, us=5, runs_at=60, runs_us=10)
    gc.disable()
    try:
        facts = facts_of(trace)
        assert len(facts.launches.costs) == len(facts.gpu.kernels.event) == 1
        facts.gpu.mfu, facts.launches.hotspots, facts.host_work.tasks, facts.unslowed, facts.memory  # noqa: B018
        events = weakref.ref(facts.events)
        del facts
        assert events() is None
    finally:
        gc.enable()
