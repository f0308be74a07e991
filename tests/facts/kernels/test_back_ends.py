"""Which call of c10d began which operation of a back end on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.kernels.back_ends import on_cpu
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of

SMALL, LARGE = 267_786, 787_968


def _called(begun: list[int], called: list[int], folder: Path) -> list[int]:
    """Return when, in µs, the calls of two operations of these sizes began that begin at 300 and 320 µs. The
    calls are at 100 and 200 µs."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=1_000)
    for size, at in zip(called, (100, 200), strict=True):
        main.op("c10d::allreduce_", at=at, us=5, more={"Input Dims": [[[size]], [], []]})
    for size, at in zip(begun, (300, 320), strict=True):
        trace.thread("gloo").op("gloo:all_reduce", at=at, us=50, shapes=[[size]])
    facts = facts_of(trace, folder)
    found = on_cpu(facts.host, facts.window, facts.trace.metadata)
    order = np.argsort(facts.events.start_ns[found.event])
    times: list[int] = (facts.events.start_ns[found.call[order]] // 1_000).tolist()
    return times


@pytest.mark.parametrize(
    ("begun", "times"), [([SMALL, LARGE], [100, 200]), ([LARGE, SMALL], [200, 100])], ids=["in order", "not"]
)
def test_operations_that_threads_begin_in_another_order_belong_to_calls_of_their_size(
    begun: list[int], times: list[int], tmp_path: Path
) -> None:
    assert _called(begun, [SMALL, LARGE], tmp_path) == times


def test_calls_that_state_other_sizes_are_taken_in_order(tmp_path: Path) -> None:
    assert _called([9, 7], [SMALL, LARGE], tmp_path) == [100, 200]


@pytest.mark.parametrize(
    ("kind", "elements"), [("float", 1), ("", NONE)], ids=["a tensor without dimensions", "no tensor"]
)
def test_a_message_without_dimensions_is_one_number(kind: str, elements: int, tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=1_000)
    main.op("c10d::allreduce_", at=100, us=5)
    trace.thread("gloo").op("gloo:all_reduce", at=300, us=50, shapes=[[]], more={"Input type": [kind]})
    facts = facts_of(trace, tmp_path)
    (said,) = on_cpu(facts.host, facts.window, facts.trace.metadata).message
    assert said.elements_in == elements
