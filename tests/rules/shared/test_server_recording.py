from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.recording.no_steps import RULE
from tb_gpudiag.rules.run import run_rules
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of, is_clear

OF_TRAINING = ("prof.step()", "schedule(", "train_step", "optimizer", "Optimizer", "for batch in loader")


def _served(operator: str) -> TraceBuilder:
    """Decode steps of small kernels, launched one by one, without marks and stacks."""
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(8):
        at = 1_000 * step
        main.annotation("execute_model", at=at, us=900)
        main.copy("HtoD", at=at + 5, us=5, runs_at=at + 12, runs_us=2, bytes=64)
        for i in range(12):
            main.op(operator, at=at + 20 + 40 * i, us=30)
            main.launch("rms_norm", at=at + 25 + 40 * i, us=5, runs_at=at + 32 + 40 * i, runs_us=6)
    return trace


@pytest.mark.parametrize(
    ("operator", "recipe"), [("vllm::moe_forward", "--profiler-config"), ("sglang::mm", "/start_profile")]
)
def test_nothing_about_a_server_is_advice_for_a_training_loop(
    operator: str, recipe: str, tmp_path: Path
) -> None:
    found = run_rules(facts_of(_served(operator), tmp_path), RULES)
    said = [
        *(text for one in found.findings for text in (one.finding.fix.text, one.finding.fix.code)),
        *(answer.how_to_record for _, answer in found.unchecked),
    ]
    assert len(said) > 4
    assert not [(text, part) for text in said for part in OF_TRAINING if part in text]
    assert any(recipe in text for text in said)


def test_a_server_without_marked_steps_has_no_finding(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_served("vllm::moe_forward"), tmp_path)))
