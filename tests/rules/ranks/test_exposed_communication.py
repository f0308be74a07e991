from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.core.intervals import Intervals
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.ranks.exposed_communication import RULE
from tb_gpudiag.rules.rule import Severity
from tb_gpudiag.wording.quantity import duration, number, share_of
from tests.builder import TraceBuilder
from tests.rules.stage import (
    STEP_AT,
    STEP_US,
    cannot_tell,
    facts_of,
    figures,
    finding,
    healthy,
    is_clear,
    without_gpu,
)

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"


def reduced(us: float, folder: Path) -> Facts:
    """Build a step that computes until 500 µs, with an all-reduce from 400 µs until `us` after that."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=STEP_AT, us=STEP_US)
    main.op("c10d::allreduce_", at=STEP_AT + 20, us=15)
    main.launch("gemm", at=STEP_AT, us=5, runs_at=STEP_AT + 10, runs_us=390)
    main.launch(ALL_REDUCE, at=STEP_AT + 25, us=5, runs_at=400, runs_us=100 + us, stream=20)
    return facts_of(trace, folder)


def test_fires_on_the_exposed_part(tmp_path: Path) -> None:
    facts = reduced(200, tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == 200_000
    evidence = figures(found)
    assert evidence["Exposed communication"] == (
        duration(200_000),
        share_of(200_000, 1_000_000, "of the step window"),
    )
    assert evidence["Exposed share"] == (share_of(200, 300, "of the communication time"),)
    assert evidence["AllReduce"] == (
        number(1, "kernel"),
        duration(300_000),
        duration(200_000, "exposed"),
    )
    assert found.places[0].operator == "c10d::allreduce_"
    assert found.claims[0].total == 200_000


@pytest.mark.parametrize(("us", "severity"), [(290, Severity.WARNING), (310, Severity.ERROR)])
def test_is_an_error_from_30_percent(us: float, severity: Severity, tmp_path: Path) -> None:
    facts = reduced(us, tmp_path)
    assert RULE.severity_of(finding(RULE.check(facts)), facts.window.duration_ns) == severity


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(reduced(99, tmp_path)))


def test_does_not_count_claimed_time_again(tmp_path: Path) -> None:
    facts = reduced(200, tmp_path)
    (claim,) = finding(RULE.check(facts)).claims.values()
    half = Intervals(claim.start, claim.start + 150_000)
    assert is_clear(RULE.check(facts, {0: half}))


def test_a_healthy_job_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(healthy(), tmp_path)))


def test_cannot_tell_without_a_gpu(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(without_gpu(), tmp_path)))
