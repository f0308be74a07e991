from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.report.diagnosis import diagnose_path
from tb_gpudiag.report.wire import dump, to_dict
from tb_gpudiag.rules.answer import CannotTell, Severity
from tb_gpudiag.rules.recording.secrets_recorded import RULE
from tests.builder import TraceBuilder
from tests.real_traces import FILES, real_facts
from tests.rules.stage import facts_of, finding, healthy, is_clear, without_gpu

TOKEN = "hf_" + "a1B2" * 8


def _with_environment(trace: TraceBuilder, **environment: str) -> TraceBuilder:
    return trace.raw({"ph": "M", "name": "environment", "pid": 1, "tid": 1, "args": environment})


def test_it_fires_and_names_what_it_found(tmp_path: Path) -> None:
    trace = _with_environment(healthy(), HF_TOKEN=TOKEN, WANDB_API_KEY="0a" * 20, HOME="/root")
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert found.title == "The trace contains credentials: “HF_TOKEN”, “WANDB_API_KEY”"
    assert [(e.label, e.text) for e in found.evidence] == [
        ("“HF_TOKEN” (Hugging Face token)", "1 place"),
        ("“WANDB_API_KEY”", "1 place"),
    ]
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.WARNING
    assert found.cost_ns == 0


def test_many_names_do_not_fill_the_title(tmp_path: Path) -> None:
    many = {f"{word}_TOKEN": "abcdefgh1234" for word in ("A", "B", "C", "D", "E")}
    found = finding(RULE.check(facts_of(_with_environment(healthy(), **many), tmp_path)))
    assert found.title.endswith("and 2 more")
    assert len(found.evidence) == 5


def test_the_title_names_what_is_in_the_name_of_an_event(tmp_path: Path) -> None:
    trace = _with_environment(healthy(), WANDB_API_KEY="0a" * 20)
    for at in (150, 350):
        trace.thread().annotation(f"login {TOKEN}", at=at, us=100)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert found.title == "The trace contains credentials: “WANDB_API_KEY”, Hugging Face token"


def test_no_value_is_in_the_report(tmp_path: Path) -> None:
    trace = _with_environment(healthy(), HF_TOKEN=TOKEN)
    trace.thread(f"worker {TOKEN}").annotation(f"login {TOKEN}", at=150, us=100)
    report = diagnose_path(str(trace.write(tmp_path)))
    assert "GD907" in {finding.rule for finding in report.findings}
    assert TOKEN not in dump(to_dict(report))


def test_a_trace_without_credentials_is_clear(tmp_path: Path) -> None:
    other = _with_environment(without_gpu(), TOKENIZERS_PARALLELISM="false", PWD="/root", HF_TOKEN="")
    assert is_clear(RULE.check(facts_of(other, tmp_path)))


@pytest.mark.slow
def test_text_that_was_not_searched_is_not_called_clear(tmp_path: Path) -> None:
    hostile = {"COMMENT": "hf_a " * 200_000}
    answer = RULE.check(facts_of(_with_environment(healthy(), **hostile), tmp_path))
    assert isinstance(answer, CannotTell)
    assert "not searched" in answer.reason
    facts = facts_of(_with_environment(healthy(), HF_TOKEN=TOKEN, **hostile), tmp_path)
    assert "at least 1 place" in finding(RULE.check(facts)).summary


@pytest.mark.parametrize("file", FILES)
def test_of_real_traces_only_those_with_the_environment_of_their_job(file: str) -> None:
    with_environment = file.startswith(("h100_bert", "h100_owl", "h100_time", "mi300_falcon"))
    assert is_clear(RULE.check(real_facts(file))) != with_environment
