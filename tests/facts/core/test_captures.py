"""Captures of graphs: launches into a graph run nothing, so the host does not keep the GPU waiting."""

from __future__ import annotations

import pytest

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.verdict import find_verdict
from tests.builder import HostThread, TraceBuilder
from tests.facts import facts_of
from tests.with_each import with_each

PREFIXES = ["cuda", "hip", "cu"]


def launches(main: HostThread, number: int, at: float, call: str = "cudaLaunchKernel") -> None:
    for i in range(number):
        main.op("aten::mm", at=at + 20 * i, us=15).call(call, at=at + 20 * i + 5, us=5)


def step_with_capture(main: HostThread, number: int, at: float, capture_us: float) -> None:
    """A step of 10,000 µs: a capture, then kernels until its end."""
    main.step(number, at=at, us=10_000)
    main.frame("train.py(12): train", at=at, us=10_000)
    if capture_us:
        main.call("cudaStreamBeginCapture", at=at + 10, us=5)
        launches(main, int(capture_us / 20) - 4, at + 20)
        main.call("cudaStreamEndCapture", at=at + capture_us - 10, us=5)
    begins = at + capture_us + 20
    main.launch("gemm", at=begins, us=5, runs_at=begins + 8, runs_us=10_000 - capture_us - 40)


@with_each("prefix", PREFIXES)
def test_a_capture_in_the_first_step_is_set_up(prefix: str) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(4):
        step_with_capture(main, i, i * 10_000, 4_000 if i == 0 else 0)
    for span in trace.recording.host:
        span.name = span.name.replace("cudaStream", f"{prefix}Stream")
    facts = facts_of(trace)
    assert not facts.captures.recur
    assert len(facts.captures.launches) == 196
    assert facts.lost_work.lost.tolist() == []
    idle = facts.gpu.ledger.by_cause(facts.recorded_window)
    assert idle[Cause.INITIALIZATION] == pytest.approx(3_985_000, abs=20_000)
    assert len(facts.steps) == 3  # the step window begins after it
    assert find_verdict(facts).limiter == "compute"


def test_a_capture_in_each_step_is_compilation() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(4):
        step_with_capture(main, i, i * 10_000, 4_000)
    facts = facts_of(trace)
    assert facts.captures.recur
    idle = facts.gpu.ledger.by_cause(facts.window)
    assert idle[Cause.COMPILE] == pytest.approx(4 * 3_985_000, abs=80_000)


@pytest.mark.parametrize("missing", ["cudaStreamBeginCapture", "cudaStreamEndCapture"])
def test_a_capture_may_go_on_beyond_the_recording(missing: str) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("fill", at=0, us=5, runs_at=7, runs_us=5)
    main.call("cudaStreamBeginCapture", at=20, us=5)
    launches(main, 20, 30)
    main.call("cudaStreamEndCapture", at=440, us=5)
    trace.recording.host = [span for span in trace.recording.host if span.name != missing]
    facts = facts_of(trace)
    assert len(facts.captures.launches) == 20
    assert facts.captures.times.total >= 405_000


@with_each("mark", ["capture_32_FULL", "capture_8_PIECEWISE", "capture_1_DECODE"])
def test_a_servers_mark_is_a_capture_without_what_runs_in_it(mark: str) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.annotation(mark, at=0, us=500)
    main.launch("warm_up", at=10, us=5, runs_at=20, runs_us=5)
    launches(main, 10, 30)
    assert len(facts_of(trace).captures.launches) == 10


def test_a_recording_of_a_capture_is_called_that_and_gets_no_advice_about_time() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1_000).frame("serve.py(9): capture", at=0, us=1_000)
    main.launch("fill", at=5, us=5, runs_at=12, runs_us=5)
    main.call("hipStreamBeginCapture", at=20, us=5)
    launches(main, 45, 30, "hipLaunchKernel")
    main.call("hipStreamEndCapture", at=980, us=5)
    facts = facts_of(trace)
    verdict = find_verdict(facts)
    assert verdict.limiter == "initialization"
    assert "This is the capture of a CUDA or HIP graph" in verdict.sentence
    assert "45 launches were put into a graph" in verdict.sentence
    found = run_rules(facts, RULES).findings
    assert all(f.severity is Severity.INFO and not f.finding.cost_ns for f in found)
    assert "Only the capture of a graph was recorded" in [f.finding.title for f in found]


def test_a_capture_without_any_kernel_is_no_gpu_that_was_not_recorded() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.call("cudaStreamBeginCapture", at=0, us=5)
    launches(main, 10, 10)
    main.call("cudaStreamEndCapture", at=210, us=5)
    facts = facts_of(trace)
    assert "capture" in find_verdict(facts).sentence
    assert "GD905" not in [f.rule.id for f in run_rules(facts, RULES).findings]


def compiled_call(main: HostThread, at: float, *, captures: bool) -> None:
    """A compiled call of 10,000 µs that captures, or of 100 µs, and then replays."""
    main.op("CompiledFunction", at=at, us=10_000 if captures else 100)
    if captures:
        main.call("cudaStreamBeginCapture", at=at + 8_000, us=5)
        main.call("cudaStreamEndCapture", at=at + 9_000, us=5)
    ends = at + (9_900 if captures else 50)
    main.launch("gemm", at=ends, us=5, runs_at=ends + 8, runs_us=200, call="cudaGraphLaunch")


@pytest.mark.parametrize("captures", [[True, False, True, False, True], [True, False, False, False, False]])
def test_captures_between_replays_are_captures_again(captures: list[bool]) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("train.py(12): train", at=0, us=60_000)
    main.launch("first", at=0, us=5, runs_at=10, runs_us=20)
    for i, captured in enumerate(captures):
        compiled_call(main, 100 + i * 11_000, captures=captured)
    facts = facts_of(trace)
    assert facts.captures.recur is (sum(captures) > 1)
    # All of the compiled call prepares the graph.
    assert facts.captures.times.total == sum(captures) * 10_000_000
    findings = [f for f in run_rules(facts, RULES).findings if f.rule.id == "GD104"]
    assert (
        any(f.finding.title.startswith("Capturing CUDA graphs again") for f in findings)
        is facts.captures.recur
    )


def test_a_server_that_captures_all_its_graphs_first_does_not_capture_again() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(5):
        main.call("cudaStreamBeginCapture", at=i * 1_000, us=5).call(
            "cudaStreamEndCapture", at=i * 1_000 + 900, us=5
        )
    for i in range(5):
        at = 6_000 + 1_000 * i
        main.launch("gemm", at=at, us=5, runs_at=at + 8, runs_us=900, call="cudaGraphLaunch")
    assert not facts_of(trace).captures.recur
