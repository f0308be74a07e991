from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.idle.anomaly_mode import RULE
from tb_gpudiag.rules.run import run_rules
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of, finding, is_clear, severity

NODES = 10


def _training(checked: int, *, on_gpu: bool = True, step_us: float = 1_000) -> TraceBuilder:
    """A step with ten nodes of 50 us, each with a kernel of 5 us. Some look for NaN from 20 us on."""
    trace = TraceBuilder() if on_gpu else TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=step_us)
    if on_gpu:
        main.launch("gemm", at=1, us=5, runs_at=8, runs_us=100)
        main.launch("gemm", at=620, us=5, runs_at=630, runs_us=step_us - 640)
    for number in range(NODES):
        at = 110 + 50 * number
        name = "autograd::engine::evaluate_function: MulBackward0"
        main.op(name, at=at, us=49, sequence=number, forward_thread=1)
        main.op("MulBackward0", at=at + 1, us=15, sequence=number, forward_thread=1)
        if on_gpu:
            main.launch("mul", at=at + 3, us=5, runs_at=at + 10, runs_us=5)
        if number >= checked:
            continue
        main.op("aten::isnan", at=at + 20, us=6)
        main.op("aten::any", at=at + 27, us=6)
        main.op("aten::is_nonzero", at=at + 34, us=14)
        if on_gpu:
            main.launch("isnan", at=at + 22, us=3, runs_at=at + 26, runs_us=2)
            main.sync(at=at + 35, us=12)
    return trace


def test_each_node_that_looks_for_nan_keeps_the_gpu_idle(tmp_path: Path) -> None:
    facts = facts_of(_training(NODES), tmp_path)
    found = finding(RULE.check(facts))
    assert NODES * 15_000 <= found.cost_ns <= NODES * 40_000
    assert "set_detect_anomaly(False)" in found.fix.code
    outcome = run_rules(facts, RULES)
    assert outcome.findings[0].rule.id == "GD107"
    assert severity(RULE, found, facts) == Severity.ERROR


def test_on_a_cpu_it_is_the_main_threads_time(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_training(NODES, on_gpu=False), tmp_path)))
    assert found.cost_ns == NODES * 26_000


@pytest.mark.parametrize("checked", [0, 4])
def test_a_backward_pass_of_ones_own_may_look_for_nan(checked: int, tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_training(checked), tmp_path)))


def test_a_small_part_is_no_error(tmp_path: Path) -> None:
    facts = facts_of(_training(NODES, step_us=40_000), tmp_path)
    assert severity(RULE, finding(RULE.check(facts)), facts) == Severity.WARNING
