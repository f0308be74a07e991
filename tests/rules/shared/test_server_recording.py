from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.doubts import HOST_SPEED
from tb_gpudiag.rules.recording.no_steps import RULE
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.verdict import find_verdict
from tests.builder import TraceBuilder
from tests.real_traces import real_report
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


def _decoding(steps: int) -> TraceBuilder:
    """Steps that prepare a batch for 400 µs and replay a graph for 600 µs."""
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(steps):
        at = 1_000 * step
        main.annotation("step[DECODE bs=16]", at=at, us=400)
        main.frame("sglang/srt/managers/scheduler.py(3006): run_batch", at=at, us=400)
        main.launch("prepare", at=at + 5, us=5, runs_at=at + 12, runs_us=4)
        main.graph_launch([("gemm", at + 400 + 15 * i, 15) for i in range(40)], at=at + 385, us=12)
    return trace


def test_one_step_of_a_server_does_not_show_what_its_host_costs(tmp_path: Path) -> None:
    """A server prepares a step while the GPU runs the one before. One that launches kernel by kernel does
    not."""
    facts = facts_of(_decoding(1), tmp_path / "one")
    verdict, outcome = find_verdict(facts), run_rules(facts, RULES)
    assert verdict.limiter == "unknown"
    assert "one step only" in verdict.sentence
    about_host = [f for f in outcome.findings if f.rule.topic in HOST_SPEED]
    assert about_host
    for found in about_host:
        assert found.severity is Severity.INFO
        assert found.finding.saving is None
        assert "several steps in a row" in found.finding.fix.text
        assert "/start_profile" in found.finding.fix.code
    assert find_verdict(facts_of(_decoding(6), tmp_path / "six")).limiter == "python"


def test_a_server_without_marked_steps_has_no_finding(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_served("vllm::moe_forward"), tmp_path)))


def test_a_host_that_gets_ahead_during_a_prefill_was_not_slowed(tmp_path: Path) -> None:
    """In steps of one kind, a host that falls behind at once was slowed by the recorder."""
    marks = {"prefill": "step[EXTEND bs=4 toks=4096]", "decode": "step[DECODE bs=4]"}
    verdicts = {}
    for first in marks:
        trace = TraceBuilder()
        main, free = trace.thread(), 0.0
        for step in range(8):
            at = 1_000.0 * step + (4_000 if step else 0)
            main.annotation(marks[first if step == 0 else "decode"], at=at, us=700)
            for i in range(10):
                runs_at = max(free, at + 60 + 65 * i) + (900 if step == 0 and i == 0 else 0)
                main.launch("gemm", at=at + 50 + 65 * i, us=5, runs_at=runs_at, runs_us=30 if step else 400)
                free = runs_at + (30 if step else 400)
        verdicts[first] = "GD908" in {
            f.rule.id for f in run_rules(facts_of(trace, tmp_path / first), RULES).findings
        }
    assert verdicts == {"prefill": False, "decode": True}


def test_a_prefill_is_no_warm_up_and_no_slow_step(tmp_path: Path) -> None:
    """Of steps with one batch, a slow first one is a warm-up."""
    for first, found in (("step[EXTEND bs=4 toks=4096]", set()), ("step[DECODE bs=4]", {"GD902"})):
        trace = TraceBuilder()
        main = trace.thread()
        for step in range(8):
            at = 1_000.0 * step + (9_000 if step else 0)
            main.annotation("step[DECODE bs=4]" if step else first, at=at, us=200)
            main.launch("gemm", at=at + 50, us=5, runs_at=at + 60, runs_us=900 if step else 9_900)
        fired = {f.rule.id for f in run_rules(facts_of(trace, tmp_path / first[5:9]), RULES).findings}
        assert fired & {"GD106", "GD902"} == found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("b200_vllm_eager", "vLLM"),
        ("b300_sglang_decode", "SGLang"),
        ("mi300_vllm_graph", ""),  # nothing to advise
        ("mi300_sglang_prefill", ""),
    ],
)
def test_the_first_advice_for_a_recorded_server_is_about_its_engine(
    folder: str, words: str, shared_traces: Path
) -> None:
    findings = real_report(next((shared_traces / folder).glob("*.json.gz"))).findings
    assert [words in finding.fix.text for finding in findings[:1]] == [True] * bool(words)
    for finding in findings:
        for other in ("prof.step", "wait_stream", "wait_event"):
            assert other not in finding.fix.text + finding.fix.code
