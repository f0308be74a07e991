"""Operators that the operating system interrupted, and those that take long for other reasons."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tb_gpudiag.facts.waiting.interruptions import Interruptions
from tests.builder import HostThread, TraceBuilder
from tests.facts import facts_of
from tests.with_each import with_each

STALL_US = 2_000


Act = Callable[[HostThread, float], object]


def job(act: Act, *, gpu: bool = True, name: str = "aten::view") -> Interruptions:
    """A hundred operators of 10 µs, five of which are followed by what `act` does at a time."""
    trace = TraceBuilder(devices=("Test GPU",) if gpu else ())
    main = trace.thread()
    for i in range(100):
        at = 5_000.0 * i
        main.op(name, at=at, us=10)
        if i % 20 == 10:
            act(main, at + 20)
    if gpu:
        main.launch("gemm", at=600_000, us=5, runs_at=600_010, runs_us=100)
    return facts_of(trace).host_work.interruptions


def stall(name: str) -> Act:
    return lambda main, at: main.op(name, at=at, us=STALL_US)


def allocate(main: HostThread, at: float) -> None:
    main.op("aten::view", at=at, us=STALL_US).call("cudaMalloc", at=at, us=STALL_US - 10)


def load(main: HostThread, at: float) -> None:
    main.loader(at=at, us=STALL_US + 100).op("aten::view", at=at, us=STALL_US)


def two_at_once(main: HostThread, at: float) -> None:
    for i in range(2):
        main.op("aten::view", at=at + 2_100 * i, us=STALL_US)


@pytest.mark.parametrize("gpu", [True, False])
def test_an_operator_that_computes_nothing_is_interrupted(gpu: bool) -> None:
    found = job(stall("aten::view"), gpu=gpu)
    assert found == Interruptions(
        stalls=5,
        stall_ns=STALL_US * 1_000,
        total_ns=5 * STALL_US * 1_000,
        usual_ns=10_000,
        longest=found.longest,
        longest_ns=STALL_US * 1_000,
    )
    assert found.several


def test_beside_a_gpu_any_operator_only_dispatches() -> None:
    assert job(stall("aten::add"), name="aten::add").stalls == 5


@with_each(
    ("name", "act"),
    [
        ("aten::item", stall("aten::item")),  # it waits for the GPU
        ("aten::to", stall("aten::to")),  # it copies
        ("aten::view", allocate),
        ("aten::view", stall("aten::lstm")),  # it always takes that long
        ("aten::view", load),
    ],
)
def test_what_takes_long_for_another_reason(name: str, act: Act) -> None:
    assert job(act, name=name).stalls == 0


def test_on_a_cpu_operators_take_longer_for_larger_inputs() -> None:
    """Only with shapes can calls be compared."""
    assert job(stall("aten::add"), gpu=False, name="aten::add").stalls == 0


def test_what_often_takes_long_is_not_interrupted() -> None:
    assert job(two_at_once).stalls == 0
