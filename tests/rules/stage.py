"""A tiny job for the rules: one step of 1,000 µs with one gap, during which the host does one thing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import CannotTell, Clear, Finding, RuleAnswer, Saving, Severity
from tb_gpudiag.rules.rule import Rule
from tb_gpudiag.rules.savings import Predicted, with_saving
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.wording.quantity import Quantity
from tests.builder import HostThread, TraceBuilder

STEP_AT = 100.0
STEP_US = 1000.0
GAP_AT = 300.0
HOST_AT = 200.0
LAUNCH_US = 5.0
LATENCY_US = 1.0

Act = Callable[[HostThread, float, float], object]
"""Adds what the host does to the trace: (thread, at, us)."""


def one_step(*, devices: Sequence[str] = ("Test GPU",)) -> tuple[TraceBuilder, HostThread]:
    """Begin a trace with a step of 1,000 µs; return it and its main thread."""
    trace = TraceBuilder(devices=devices)
    main = trace.thread()
    main.step(0, at=STEP_AT, us=STEP_US)
    return trace, main


def one_gap(act: Act, idle_us: float) -> TraceBuilder:
    """Build a step in which the GPU works until 300 µs, and from 306 µs + idle_us to the end at 1,100 µs.

    The host acts from 200 µs to 300 µs + idle_us, then launches (5 µs), and the kernel starts 1 µs later. So
    idle_us / 10 is the gap's percentage of the step window, not counting the launch and its latency (0.6%).
    """
    trace, main = one_step()
    main.launch("before", at=STEP_AT, us=5, runs_at=STEP_AT, runs_us=GAP_AT - STEP_AT)
    main.frame("train.py(12): train", at=STEP_AT, us=STEP_US)
    act(main, HOST_AT, GAP_AT + idle_us - HOST_AT)
    launch_at = GAP_AT + idle_us
    begins = launch_at + LAUNCH_US + LATENCY_US
    main.launch("after", at=launch_at, us=LAUNCH_US, runs_at=begins, runs_us=STEP_AT + STEP_US - begins)
    return trace


def healthy() -> TraceBuilder:
    """Build a step whose host launches far ahead of a GPU that is never idle."""
    trace, main = one_step()
    main.frame("train.py(12): train", at=STEP_AT, us=STEP_US)
    main.launch("before", at=STEP_AT, us=5, runs_at=STEP_AT, runs_us=20)
    for i in range(10):
        main.op("aten::mm", at=STEP_AT + i * 20, us=15)
        main.launch("gemm", at=STEP_AT + i * 20 + 5, us=5, runs_at=120 + i * 98, runs_us=98)
    return trace


def without_gpu() -> TraceBuilder:
    """Build a job that runs on the CPU."""
    trace, main = one_step(devices=())
    main.op("aten::mm", at=STEP_AT, us=STEP_US - 100)
    return trace


def facts_of(trace: TraceBuilder, folder: Path) -> Facts:
    return Facts(read_trace(str(trace.write(folder))))


def finding(answer: RuleAnswer) -> Finding:
    """Return the only finding of an answer."""
    (found,) = findings(answer)
    return found


def findings(answer: RuleAnswer) -> list[Finding]:
    """Return the findings of an answer; fail if there are none."""
    found = answer if isinstance(answer, list) else [answer]
    assert all(isinstance(one, Finding) for one in found), answer
    return [one for one in found if isinstance(one, Finding)]


def figures(found: Finding) -> dict[str, tuple[Quantity | str, ...]]:
    """Map each evidence label to its value and details, independent of how they are printed."""
    return {evidence.label: (evidence.value, *evidence.details) for evidence in found.evidence}


def saving(found: Finding, facts: Facts) -> Saving:
    """Return what a fix saves, replayed whether or not the replay can be trusted."""
    made = with_saving(found, facts, Predicted(facts.replay, facts.unslowed) if facts.device else None).saving
    assert made is not None
    return made


def severity(rule: Rule, found: Finding, facts: Facts) -> Severity:
    """Return the severity if a hundred such steps were recorded. One is too short for an error."""
    return rule.severity_of(replace(found, cost_ns=100 * found.cost_ns), 100 * facts.window.duration_ns)


def removed_ns(found: Finding, facts: Facts) -> float:
    """Return how much time of kernels the fix removes at most. The replay says what that saves."""
    assert found.removable is not None
    shorter = found.removable.most.shorter
    return float((facts.events.duration_ns[shorter.event] * shorter.share).sum())


def is_clear(answer: RuleAnswer) -> bool:
    return isinstance(answer, Clear)


def cannot_tell(answer: RuleAnswer) -> bool:
    return isinstance(answer, CannotTell)
