"""Operators that are mostly overhead."""

from __future__ import annotations

from pathlib import Path

from tests.builder import TraceBuilder
from tests.rules.stage import facts_of


def _small(trace: TraceBuilder, tmp_path: Path) -> list[tuple[str, bool]]:
    facts = facts_of(trace, tmp_path)
    host, small = facts.host, facts.host_work.small_operators
    found = [(host.name(event), bool(small[event])) for event in range(len(host.events))]
    return [one for one in found if one[0].startswith("aten::")]


def test_calls_with_inputs_of_the_same_shapes_have_the_same_to_do(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for at, us, size in ((0, 6, 8), (2_000, 900, 8), (4_000, 950, 512), (6_000, 900, 512)):
        main.op("aten::linear", at=at, us=us + 15)
        main.op("aten::mm", at=at + 10, us=us, shapes=[[size, size], [size, size]], types=["float", "float"])
    assert _small(trace, tmp_path) == [
        *[("aten::linear", True), ("aten::mm", True)] * 2,
        *[("aten::linear", True), ("aten::mm", False)] * 2,  # what it does beside the matmul takes 15 us
    ]


def test_a_call_that_waits_for_a_core_has_no_more_to_do_than_the_same_one_in_other_steps(
    tmp_path: Path,
) -> None:
    """In each step, a small call is followed by a large one. One step has another call, and tells nothing."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    took = [(5, 900), (8_000, 9_000), (5, 900), (7_000, 900), (6, 900), (5, 900, 5)]
    for step, calls in enumerate(took):
        main.step(step, at=step * 20_000, us=20_000)
        for place, us in enumerate(calls):
            main.op("aten::mm", at=step * 20_000 + place * 9_000, us=us)
    found = [small for _, small in _small(trace, tmp_path)]
    assert found == [True, False] * 5 + [True, False, True]
