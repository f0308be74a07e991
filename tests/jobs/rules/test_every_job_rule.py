"""Checks on every rule on jobs: its module, its page and its tests."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.report.job_report import run_job_rules
from tb_gpudiag.jobs.rules import uneven_ranks
from tb_gpudiag.jobs.rules.every_rule import EVERY_RULE, find_any_rule
from tb_gpudiag.jobs.rules.job_registry import JOB_RULES, JobRule
from tb_gpudiag.rules.answer import CannotTell, RuleAnswer
from tb_gpudiag.rules.rule import PAGE_HEADINGS
from tests.conftest import REPOSITORY
from tests.jobs.ranks.stage import facts_of, job

OF_TRACES = [rule for rule in JOB_RULES if rule.about == "trace"]

each_rule = pytest.mark.parametrize("rule", JOB_RULES, ids=lambda rule: rule.name)


def test_ids_are_listed_and_unique() -> None:
    known = dict(line.split() for line in (REPOSITORY / "tests/rules/ids.txt").read_text().splitlines())
    assert all(known.get(rule.id) == rule.name for rule in JOB_RULES)
    assert len({rule.id for rule in EVERY_RULE}) == len({rule.name for rule in EVERY_RULE}) == len(EVERY_RULE)


@each_rule
def test_a_rule_has_its_module_and_its_tests(rule: JobRule) -> None:
    assert callable(rule.check)
    tests = (Path(__file__).parent / f"test_{rule.name}.py").read_text()
    assert len(re.findall(r"^def test_", tests, re.MULTILINE)) >= 3
    assert find_any_rule(rule.id) is find_any_rule(rule.name) is rule


@each_rule
def test_a_page_has_the_fixed_headings_in_order(rule: JobRule) -> None:
    assert rule.page.startswith(f"# {rule.id} {rule.name}: ")
    assert re.findall(r"^## (.+)$", rule.page, re.MULTILINE) == list(PAGE_HEADINGS)


@each_rule
def test_a_page_names_every_threshold(rule: JobRule) -> None:
    module = importlib.import_module(f"{rule.package}.{rule.name}")
    shares = {name: value for name, value in vars(module).items() if name.endswith("_SHARE")}
    if rule.name in ("slow_rank", "uneven_work"):
        shares["LEAST_SHARE"] = uneven_ranks.LEAST_SHARE
    if rule.error_share is not None:
        shares["error_share"] = rule.error_share
    for name, value in shares.items():
        assert f"{value * 100:g}%" in rule.page, f"the page does not mention {value * 100:g}% ({name})"


def test_a_rule_that_crashes_costs_only_its_own_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_facts: JobFacts) -> RuleAnswer:
        raise ValueError("a name of the trace")

    monkeypatch.setattr("tb_gpudiag.jobs.rules.slow_rank.check", crash)
    outcome = run_job_rules(facts_of(job(transfer_ms=0.05)))
    (unchecked,) = [answer for rule, answer in outcome.unchecked if rule.id == "GD602"]
    assert unchecked.defect
    assert "a name" not in unchecked.reason
    assert len(outcome.clear) == len(OF_TRACES) - 1


def test_a_healthy_job_has_no_finding() -> None:
    outcome = run_job_rules(
        facts_of(job(8, 6, own_ms=lambda rank, step: 10 + (rank * 7 + step * 3) % 5 / 50, transfer_ms=0.05))
    )
    assert not outcome.findings
    assert not outcome.unchecked


def test_nothing_is_said_without_collectives() -> None:
    outcome = run_job_rules(facts_of(job(2, 0)))
    assert not outcome.findings
    assert all(isinstance(answer, CannotTell) for _, answer in outcome.unchecked)
    assert len(outcome.unchecked) == len(OF_TRACES)
