"""The steady part of a recording: first-run work, earlier work and trailing host time are outside of it."""

from __future__ import annotations

import numpy as np
import pytest

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.steady import leading_slow_steps
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.verdict import find_verdict
from tests.builder import HostThread, TraceBuilder
from tests.facts import facts_of
from tests.with_each import with_each

MS = 1_000.0
"""In us, the builder's unit."""


def steady_launches(main: HostThread, at: float, *, n: int = 20) -> float:
    """Launch n kernels of 1 ms back to back; return when the last one ends."""
    for i in range(n):
        main.launch("gemm", at=at + i * 20, us=5, runs_at=at + 10 + i * MS, runs_us=MS)
    return at + 10 + n * MS


def causes(facts: Facts) -> dict[Cause, int]:
    """Idle time of the device over the whole recording, in us."""
    assert facts.device is not None
    return {c: ns // 1000 for c, ns in facts.device.ledger.by_cause(facts.recorded_window).items()}


def test_context_creation_is_first_run_work_and_outside_of_the_window() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.op("aten::empty", at=0, us=30 * MS)
    main.call("cudaDeviceGetStreamPriorityRange", at=10, us=30 * MS - 20)
    end = steady_launches(main, 30 * MS, n=100)
    facts = facts_of(trace)
    assert causes(facts)[Cause.INITIALIZATION] >= 30 * MS - 20
    assert facts.window.start_ns == pytest.approx(30e6, abs=30e3)
    assert facts.window.end_ns == end * 1000
    assert find_verdict(facts).limiter == "compute"
    assert "first-run work" in find_verdict(facts).sentence


def test_a_recording_of_first_run_work_alone_is_marked_as_one() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.call("cudaStreamCreateWithFlags", at=0, us=300 * MS)
    main.launch("gemm", at=300 * MS, us=5, runs_at=300 * MS + 8, runs_us=MS)
    facts = facts_of(trace)
    assert facts.steady.mostly is Cause.INITIALIZATION
    assert find_verdict(facts).limiter == "initialization"


def test_a_short_device_query_is_not_first_run_work() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.call("cudaGetDevice", at=0, us=900)
    steady_launches(main, 1000)
    assert Cause.INITIALIZATION not in causes(facts_of(trace))


def load_in_steps(steps: range) -> TraceBuilder:
    """Six steps of 10 ms; in some of them the first launch of a new kernel loads its code for 5 ms."""
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(6):
        at = i * 10 * MS
        main.step(i, at=at, us=10 * MS)
        if i in steps:
            main.launch(f"new_{i}", at=at, us=5 * MS, runs_at=at + 5 * MS + 5, runs_us=10)
        main.launch("gemm", at=at + 6 * MS, us=5, runs_at=at + 6 * MS + 10, runs_us=3 * MS)
    return trace


def test_loading_in_the_first_step_alone_is_first_run_work() -> None:
    facts = facts_of(load_in_steps(range(1)))
    assert causes(facts)[Cause.INITIALIZATION] == pytest.approx(5 * MS, abs=10)
    assert facts.steady.first == 1
    assert facts.steps.names == [f"ProfilerStep#{i}" for i in range(1, 6)]
    assert facts.recorded_steps.names == [f"ProfilerStep#{i}" for i in range(6)]


def test_loading_in_every_step_is_the_jobs_own_cost() -> None:
    facts = facts_of(load_in_steps(range(6)))
    assert Cause.INITIALIZATION not in causes(facts)
    assert causes(facts)[Cause.COMPILE] >= 30 * MS - 60
    assert len(facts.steps) == 6


def unmarked_passes(loading: range) -> TraceBuilder:
    """Twelve unmarked passes of 30 launches. In some, the first launch of a new kernel loads its code."""
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(12):
        at = i * 40 * MS
        if i in loading:
            main.launch(f"new_{i}", at=at, us=8 * MS, runs_at=at + 8 * MS + 5, runs_us=10)
        steady_launches(main, at + 9 * MS, n=30)
    return trace


def test_loading_that_goes_on_without_step_marks_is_the_jobs_own_cost() -> None:
    facts = facts_of(unmarked_passes(range(12)))
    assert Cause.INITIALIZATION not in causes(facts)
    assert facts.steady.mostly is None


def test_loading_that_ends_without_step_marks_is_first_run_work() -> None:
    facts = facts_of(unmarked_passes(range(3)))
    assert causes(facts)[Cause.INITIALIZATION] >= 24 * MS - 100


@pytest.mark.parametrize("call", ["cudaMemcpy", "cudaStreamSynchronize"])
def test_blocking_before_any_recorded_work_is_earlier_work(call: str) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("slipped_in", at=0, us=5, runs_at=8, runs_us=3)
    main.call(call, at=20, us=50 * MS)
    steady_launches(main, 51 * MS, n=60)
    facts = facts_of(trace)
    assert causes(facts)[Cause.UNRECORDED] == pytest.approx(50 * MS, abs=20)
    assert facts.window.start_ns == pytest.approx(50e6, abs=1e5)
    assert find_verdict(facts).limiter == "compute"


def test_blocking_on_recorded_work_is_not_earlier_work() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    end = steady_launches(main, 0)
    main.sync(at=500, us=end - 500 + 5 * MS)
    steady_launches(main, end + 6 * MS)
    assert Cause.UNRECORDED not in causes(facts_of(trace))


def test_waiting_after_the_last_gpu_work_leaves_the_window_as_it_is() -> None:
    trace = TraceBuilder()
    trace.kernel("only", at=1 * MS, us=10)
    trace.thread().sync(at=2 * MS, us=100 * MS)
    facts = facts_of(trace)
    assert (facts.window.start_ns, facts.window.duration_ns) == (1_000_000, 10_000)
    verdict = find_verdict(facts)
    assert verdict.limiter == "unknown"
    assert "too little" in verdict.sentence


def test_first_runs_are_most_of_a_recording_that_ends_with_a_long_wait() -> None:
    """The profiler synchronizes as it stops, which may take longer than the GPU's work."""
    trace = TraceBuilder()
    main = trace.thread()
    main.op("aten::conv2d", at=0, us=900 * MS).call("cudaFree", at=1 * MS, us=890 * MS)
    steady_launches(main, 900 * MS)
    main.sync("cudaDeviceSynchronize", at=1_000 * MS, us=1_300 * MS)
    facts = facts_of(trace)
    assert facts.steady.mostly is Cause.INITIALIZATION
    assert facts.steady.after_ns > 1_000 * MS * 1_000
    assert find_verdict(facts).limiter == "initialization"


def test_a_recording_without_a_steady_part_is_judged_up_to_its_last_gpu_work() -> None:
    trace = TraceBuilder(devices=("a", "b"))
    main = trace.thread()
    trace.kernel("first", at=0, us=20, device=0)
    main.sync(at=50, us=100 * MS)
    trace.kernel("on another GPU", at=40 * MS, us=10, device=1)
    facts = facts_of(trace)
    assert Cause.UNRECORDED in causes(facts)
    assert facts.window.start_ns == facts.recorded_window.start_ns
    assert facts.window.end_ns == int(facts.work.end_ns.max())


def test_host_time_after_the_last_gpu_work_is_not_waiting() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    end = steady_launches(main, 0)
    main.frame("train.py(3): save_results", at=500, us=3 * end)
    facts = facts_of(trace)
    assert facts.window.end_ns == end * 1000
    assert find_verdict(facts).limiter == "compute"


@with_each(
    ("lengths", "slow"),
    [
        ([900, 100, 100, 100], 1),
        ([900, 400, 100, 100, 100, 100], 2),
        ([900, 100, 800, 100, 850, 100], 0),  # an evaluation in every second step
        ([900, 100, 300, 100, 100, 100], 1),  # a checkpoint
        ([100, 100, 100], 0),
        ([900, 0, 0, 0], 0),
    ],
)
def test_slow_steps_at_the_beginning_that_come_again_are_no_warm_up(lengths: list[int], slow: int) -> None:
    assert leading_slow_steps(np.array(lengths, np.int64))[0] == slow


def test_a_slow_first_step_is_left_out_and_a_slow_later_one_is_not() -> None:
    for slow, kept in ((0, 5), (3, 6)):
        trace = TraceBuilder()
        main = trace.thread()
        at = 0.0
        for i in range(6):
            us = 50 * MS if i == slow else 10 * MS
            main.step(i, at=at, us=us)
            main.launch("gemm", at=at + us - 9 * MS, us=5, runs_at=at + us - 9 * MS + 10, runs_us=8 * MS)
            at += us
        assert len(facts_of(trace).steps) == kept


@with_each(("start", "ahead", "left_out"), [(1.0, True, 1.0), (1.0, False, 0.0), (8.0, True, 0.0)])
def test_what_the_host_needs_before_a_first_repetition_is_no_idle_time(
    start: float, ahead: bool, left_out: float
) -> None:
    """Calls of 1 ms that nothing marks. A host that runs ahead from then on needs this time once; where the
    GPU waits before each of them, all of it counts. A long start may load a batch."""
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("infer.py(3): main", at=0, us=(start + 12) * MS)
    gpu = 0.0
    for call in range(10):
        at = start * MS + call * (300 if ahead else 1_800)
        for kernel in range(4):
            runs_at = max(gpu, at + 10 * kernel + 8)
            main.launch(f"kernel_{kernel}", at=at + 10 * kernel, us=5, runs_at=runs_at, runs_us=250)
            gpu = runs_at + 250
    steady = facts_of(trace).steady
    assert (steady.window.start_ns - steady.recorded.start_ns) / 1e6 == pytest.approx(left_out, abs=0.02)


@pytest.mark.parametrize(("kernel_us", "left_out"), [(4 * MS, 3 * MS), (1 * MS, 0.0)])
def test_a_lead_that_makes_up_for_a_start_leaves_the_start_out(kernel_us: float, left_out: float) -> None:
    """One step of a training: where it repeats, the GPU is busy while the host gets to its first kernel."""
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("train.py(3): step", at=0, us=3 * MS)
    main.launch("forward", at=3 * MS - 10, us=5, runs_at=3 * MS, runs_us=kernel_us / 2)
    main.launch("backward", at=3 * MS, us=5, runs_at=3 * MS + kernel_us / 2, runs_us=kernel_us / 2)
    assert facts_of(trace).steady.before_ns == left_out * 1e3
