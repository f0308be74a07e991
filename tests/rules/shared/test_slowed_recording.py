"""Hosts that wait for nothing but the recorder: every operator and call of theirs is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.outcome import RuleFinding
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.verdict import find_verdict
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of

KERNELS = 60
KERNEL_US = 20.0
STEPS = 3


def job(*, between_us: float, operators: int) -> TraceBuilder:
    """Kernels of 20 µs, one every between_us; before each, that many operators and a launch of 5 µs."""
    trace = TraceBuilder()
    main = trace.thread()
    host = gpu = 0.0
    for number in range(STEPS):
        began = host
        for _ in range(KERNELS):
            for place in range(operators - 1):
                main.op("aten::view", at=host + 1 + place, us=0.5)
            runs_at = max(gpu + 1, host + between_us - 2)
            main.op("aten::mm", at=host + operators, us=between_us - operators - 1).launch(
                "gemm", at=host + between_us - 8, us=5, runs_at=runs_at, runs_us=KERNEL_US
            )
            gpu = runs_at + KERNEL_US
            host += between_us
        main.step(number, at=began, us=host - began)
    return trace


def severities(findings: Sequence[RuleFinding]) -> dict[str, Severity]:
    return {found.rule.id: found.severity for found in findings}


@pytest.mark.parametrize(
    ("between_us", "operators", "limiter", "doubted", "severity"),
    [
        (50, 1, "launch", False, Severity.WARNING),  # at most 7 µs of 50 are the recorder's: busy 47%
        (40, 4, "launch", True, Severity.WARNING),  # 5 to 19 µs: busy 61% to 95%, likely below 80%
        (34, 4, "unknown", True, Severity.INFO),  # busy 73% to 95%
        (29, 4, "compute", True, Severity.INFO),  # at least 5 of 29 µs: busy 83%
        (100, 4, "launch", False, Severity.ERROR),  # at most 19 of 100 µs
    ],
)
def test_the_host_is_doubted_if_its_recording_may_take_as_long(
    between_us: float, operators: int, limiter: str, doubted: bool, severity: Severity, tmp_path: Path
) -> None:
    facts = facts_of(job(between_us=between_us, operators=operators), tmp_path)
    outcome = run_rules(facts, RULES)
    assert find_verdict(facts, outcome.findings).limiter == limiter
    found = severities(outcome.findings)
    assert ("GD908" in found) == doubted
    assert found["GD201"] == severity


def test_a_doubted_host_is_named_with_the_step_time_that_decides(tmp_path: Path) -> None:
    facts = facts_of(job(between_us=40, operators=4), tmp_path)
    outcome = run_rules(facts, RULES)
    said = find_verdict(facts, outcome.findings).sentence.replace("\N{NO-BREAK SPACE}", " ")
    assert "Launching many small kernels probably limits this job." in said
    first = outcome.findings[0]
    advice = first.finding.fix.text.replace("\N{NO-BREAK SPACE}", " ")
    assert first.rule.id == "GD908"
    # 60 kernels of 20 µs are 80% of 1.5 ms.
    assert advice.startswith("Time a step without the profiler first: below 1.50 ms, computing limits")
    assert "If it does: fuse kernels" in advice
    assert all(found.finding.saving is None for found in outcome.findings if found.rule.id == "GD201")


def test_the_verdict_says_that_recording_slows_the_host(tmp_path: Path) -> None:
    facts = facts_of(job(between_us=40, operators=4), tmp_path)
    assert "The recording slows the host." in find_verdict(facts).sentence
    estimated = facts.unslowed
    # 4 operators and a call: 5 µs at least, 19 at most, but the kernels take 21 µs.
    assert estimated.most_ns == pytest.approx(STEPS * KERNELS * 35_000, rel=0.02)
    assert estimated.least_ns == pytest.approx(STEPS * KERNELS * 21_000, rel=0.02)


def test_a_busy_gpu_is_not_doubted(tmp_path: Path) -> None:
    facts = facts_of(job(between_us=20, operators=4), tmp_path)
    assert "without the profiler" not in find_verdict(facts).sentence
    assert "GD908" not in severities(run_rules(facts, RULES).findings)
