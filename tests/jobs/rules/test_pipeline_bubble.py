"""GD610: bubbles of a pipeline."""

from __future__ import annotations

from tb_gpudiag.rules.answer import Clear, Finding, Severity
from tests.jobs.ranks.pipelines import gpipe, one_f_one_b, pipeline
from tests.jobs.ranks.stage import check_of, facts_of, job
from tests.rules.stage import figures
from tests.wording.plain import plain

check = check_of("pipeline_bubble")


def test_few_micro_batches_are_found() -> None:
    answer = check(facts_of(pipeline(gpipe, 4, 4)))
    assert isinstance(answer, Finding)
    assert "GPipe with 4 micro-batches on 4 stages waits 42.9% of the time" in plain(answer.summary)
    assert plain(answer.fix.text).startswith("Split the batch into more micro-batches: 27 leave")
    assert "Stage 0 (rank 0)" in figures(answer)


def test_enough_micro_batches_are_clear() -> None:
    assert isinstance(check(facts_of(pipeline(one_f_one_b, 4, 16))), Clear)


def test_a_slow_stage_is_to_be_balanced() -> None:
    answer = check(facts_of(pipeline(one_f_one_b, 4, 24, slow=1)))
    assert isinstance(answer, Finding)
    assert answer.fix.text.startswith("Make the stages equally long")
    assert next(label for label in figures(answer) if label.startswith("Stage")) == "Stage 1 (rank 1)"


def test_on_a_cpu_it_is_a_hint() -> None:
    answer = check(facts_of(pipeline(gpipe, 4, 4, devices=0)))
    assert isinstance(answer, Finding)
    assert answer.severity == Severity.INFO


def test_other_jobs_are_clear() -> None:
    assert isinstance(check(facts_of(job(4, 5))), Clear)
