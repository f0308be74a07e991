from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.facts.core.intervals import Intervals
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import CannotTell, Clear, Finding, Fix, RuleAnswer, Saving, Severity
from tb_gpudiag.rules.doubts import ABOUT_TIME
from tb_gpudiag.rules.idle import host_bound
from tb_gpudiag.rules.rule import Claimed, Rule
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.shared.lost_time import removing
from tb_gpudiag.rules.shared.out_of_memory import HORIZON_STEPS
from tests.builder import TraceBuilder
from tests.facts import facts_of as facts_of_story
from tests.facts.replay.test_replay import two_steps
from tests.rules.memory_stage import MIB, job
from tests.rules.stage import facts_of, healthy, one_gap
from tests.with_each import with_each

WINDOW_NS = 1_000_000


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    found = facts_of(healthy(), tmp_path)
    assert found.window.duration_ns == WINDOW_NS
    return found


def _rule(number: int, answer: RuleAnswer, *, error_share: float | None = None) -> Rule:
    return Rule(
        f"GD99{number}",
        f"rule_{number}",
        "A rule",
        lambda _facts, _claimed: answer,
        error_share=error_share,
    )


def _claims(*stretches: tuple[int, int], device: int = 0) -> dict[int, Intervals]:
    start, end = zip(*stretches, strict=True)
    return {device: Intervals(np.array(start, np.int64), np.array(end, np.int64))}


def _finding(cost_ns: int, claims: dict[int, Intervals] | None = None) -> Finding:
    return Finding("t", "s", Fix("f"), cost_ns=cost_ns, claims=claims or {})


def test_answers_are_sorted_by_kind_and_findings_by_what_their_fix_saves(facts: Facts) -> None:
    outcome = run_rules(
        facts,
        [
            _rule(3, _finding(10)),
            _rule(2, [_finding(30), _finding(20)]),
            _rule(1, Clear("fine")),
            _rule(4, CannotTell("no data", "record it")),
        ],
    )
    assert [(f.rule.id, f.finding.cost_ns) for f in outcome.findings] == [
        ("GD992", 30),
        ("GD992", 20),
        ("GD993", 10),
    ]
    assert outcome.clear[0][1] == Clear("fine")
    assert outcome.unchecked[0][1] == CannotTell("no data", "record it")


def test_time_and_memory_are_compared_by_their_share(tmp_path: Path) -> None:
    """Of the step window, and of the device's memory after ten thousand steps."""
    facts = facts_of(job([0] * 5, device_bytes=100 * MIB), tmp_path)
    window_ns = facts.window.duration_ns

    def of_memory(held: int, per_step: float, device: int = 0) -> Finding:
        return Finding(
            "t", "s", Fix("f"), cost_bytes=held, cost_bytes_per_step=per_step, memory_device=device
        )

    hint = Finding("t", "s", Fix("f"), cost_ns=window_ns, severity=Severity.INFO)
    outcome = run_rules(
        facts,
        [
            _rule(1, _finding(window_ns // 2)),
            _rule(2, of_memory(10 * MIB, 0)),  # a tenth
            _rule(3, of_memory(0, 100 * MIB / HORIZON_STEPS)),  # all of it
            _rule(4, of_memory(0, 20 * MIB / HORIZON_STEPS)),  # a fifth
            _rule(5, of_memory(5 * MIB, 0, device=7)),  # of a device without memory events: nothing
            _rule(6, hint),
            _rule(7, _finding(window_ns // 7)),
        ],
    )
    order = [f.rule.id for f in outcome.findings]
    assert order == ["GD993", "GD991", "GD994", "GD992", "GD997", "GD995", "GD996"]


def test_a_leak_that_ends_the_job_comes_first(tmp_path: Path) -> None:
    facts = facts_of(job([0] * 5, device_bytes=100 * MIB), tmp_path)
    leak = Finding("t", "s", Fix("f"), cost_bytes_per_step=1, severity=Severity.ERROR)
    growth = replace(leak, severity=Severity.WARNING)
    slow = replace(_finding(facts.window.duration_ns), severity=Severity.ERROR)
    grows, leaks = (replace(_rule(0, one), id=f"GD49{i}") for i, one in enumerate((growth, leak)))
    outcome = run_rules(facts, [_rule(1, slow), grows, leaks])
    assert [f.rule.id for f in outcome.findings] == ["GD491", "GD991", "GD490"]


def test_what_the_job_computes_is_said_first_only_among_hints(tmp_path: Path) -> None:
    facts = facts_of(job([0] * 5, device_bytes=100 * MIB), tmp_path)
    computes = Finding("t", "s", Fix("f"), severity=Severity.INFO, leads=True)
    growth = Finding("t", "s", Fix("f"), cost_bytes_per_step=1, severity=Severity.WARNING)
    hint = replace(_finding(facts.window.duration_ns), severity=Severity.INFO)
    of_kernels, of_memory = replace(_rule(2, computes), id="GD592"), replace(_rule(0, growth), id="GD490")
    hints = run_rules(facts, [_rule(1, hint), of_kernels])
    assert [f.rule.id for f in hints.findings] == ["GD592", "GD991"]
    with_leak = run_rules(facts, [_rule(1, hint), of_kernels, of_memory])
    assert with_leak.findings[0].rule.id == "GD490"


def test_findings_rank_by_severity_and_then_by_the_middle_of_what_their_fix_saves() -> None:
    """What gives little back is a hint."""
    facts = facts_of_story(two_steps(400))  # two steps of 1,000 µs

    def replayed(us: int) -> Finding:
        loading = Intervals(np.array([0]), np.array([us * 1000]))
        return replace(_finding(us * 1000), removable=removing(loading))

    outcome = run_rules(
        facts,
        [
            _rule(1, _finding(15_000)),  # under a twentieth
            _rule(2, _finding(300_000)),  # at most
            _rule(3, replayed(110)),
            _rule(4, replayed(400)),
            _rule(5, replayed(120)),
            _rule(6, replace(_finding(300_000), severity=Severity.INFO)),
            _rule(7, replace(replayed(200), severity=Severity.INFO)),
        ],
    )
    order = [f.rule.id for f in outcome.findings]
    assert order == ["GD994", "GD992", "GD995", "GD993", "GD997", "GD996", "GD991"]
    assert [planned.finding for planned in outcome.plan] == [0]  # the others remove the same time


def test_what_no_fix_can_be_seen_to_save_is_a_hint(facts: Facts) -> None:
    nothing = removing(Intervals(np.array([], np.int64), np.array([], np.int64)))
    found = replace(_finding(300_000), severity=Severity.WARNING)
    outcome = run_rules(facts, [_rule(1, replace(found, removable=nothing)), _rule(2, found)])
    assert {f.rule.id: f.severity for f in outcome.findings} == {
        "GD991": Severity.INFO,
        "GD992": Severity.WARNING,
    }


def test_where_computing_limits_the_job_the_hosts_speed_is_a_hint() -> None:
    """The verdict says so, and recording slows the host by as much."""
    prepare = "train.py(12): prepare"
    for idle_us, severity in ((150, Severity.INFO), (250, Severity.WARNING)):
        gap = one_gap(lambda main, at, us: main.frame(prepare, at=at, us=us), idle_us)
        outcome = run_rules(facts_of_story(gap), [host_bound.RULE])
        assert [found.severity for found in outcome.findings] == [severity]
    kernels = _rule(1, replace(_finding(900_000), severity=Severity.INFO))
    gap = one_gap(lambda main, at, us: main.frame(prepare, at=at, us=us), 150)
    outcome = run_rules(facts_of_story(gap), [host_bound.RULE, kernels])
    assert [found.rule.id for found in outcome.findings] == ["GD991", "GD102"]


def test_a_finding_is_a_hint_where_its_fix_saves_little_of_the_time() -> None:
    """Of 2,000 µs, 90 are not worth a warning, whatever they are spent on."""

    def saves(us: int) -> Finding:
        return replace(
            _finding(us * 1000), removable=removing(Intervals(np.array([0]), np.array([us * 1000])))
        )

    rules = [replace(_rule(1, saves(us)), id=f"GD{family}{us}") for us in (90, 110) for family in (1, 5)]
    outcome = run_rules(facts_of_story(two_steps(400)), rules)
    assert [f.rule.id for f in outcome.findings if f.severity == Severity.INFO] == ["GD190", "GD590"]


@pytest.mark.parametrize(("long_us", "hint"), [(900, False), (1_300, True)])
def test_where_launches_wait_for_their_kernels_the_hosts_work_may_cost_nothing(
    long_us: float, tmp_path: Path, *, hint: bool
) -> None:
    """CUDA_LAUNCH_BLOCKING=1: without it, the host's 50 µs per launch are hidden behind the long kernels."""
    trace = TraceBuilder()
    main = trace.thread()
    at = 0.0
    for turn in range(40):
        us = 5 if turn % 20 else long_us
        main.op("aten::mul", at=at, us=us + 50).launch(
            "gemm", at=at + 40, us=us + 8, runs_at=at + 46, runs_us=us
        )
        at += us + 50
    main.step(0, at=0, us=at)
    found = {one.rule.id: one for one in run_rules(facts_of(trace, tmp_path), RULES).findings}
    late = found["GD201"]
    assert (late.severity == Severity.INFO) == hint
    assert ("CUDA_LAUNCH_BLOCKING" in late.finding.fix.text) == hint


def test_without_a_replay_what_is_sure_does_not_come_before_what_likely_saves_more(facts: Facts) -> None:
    copy = replace(_finding(40_000), saving=Saving(30_000, 40_000, "estimate"))
    outcome = run_rules(facts, [_rule(1, replace(copy, cost_ns=0)), _rule(2, _finding(300_000))])
    assert not outcome.plan
    assert [f.rule.id for f in outcome.findings] == ["GD992", "GD991"]


def test_without_a_steady_state_no_rule_about_time_is_asked() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.call("cudaStreamCreateWithFlags", at=0, us=300_000)
    main.launch("gemm", at=300_000, us=5, runs_at=300_008, runs_us=1_000)
    outcome = run_rules(facts_of_story(trace), RULES)
    assert [f.rule.id for f in outcome.findings if f.severity > Severity.INFO] == ["GD902"]
    silent = {rule.family for rule, answer in outcome.unchecked if "first-run work" in answer.reason}
    assert silent == ABOUT_TIME


def test_a_rule_that_crashes_could_not_be_checked_and_the_others_still_are(
    facts: Facts, caplog: pytest.LogCaptureFixture
) -> None:
    def crash(_facts: Facts, _claimed: Claimed) -> RuleAnswer:
        raise ZeroDivisionError("by\nnought")

    with caplog.at_level(logging.ERROR):
        outcome = run_rules(facts, [Rule("GD990", "crash", "A rule", crash), _rule(1, Clear("fine"))])
    assert len(outcome.clear) == 1
    answer = outcome.unchecked[0][1]
    assert answer.defect
    assert "bug in gpudiag: ZeroDivisionError in test_run.py:" in answer.reason
    assert "nought" not in answer.reason  # it may be from the trace
    assert "Traceback" in caplog.text


def test_severity_follows_the_rules_policy_unless_the_finding_has_its_own(facts: Facts) -> None:
    own = Finding("t", "s", Fix("f"), severity=Severity.INFO, cost_ns=WINDOW_NS)
    outcome = run_rules(facts, [_rule(1, _finding(WINDOW_NS)), _rule(2, own, error_share=0.25)])
    assert {f.rule.id: f.severity.name for f in outcome.findings} == {"GD991": "WARNING", "GD992": "INFO"}


@with_each(
    ("cost_ms", "window_ms", "expected"),
    [(25, 100, Severity.ERROR), (24, 100, Severity.WARNING), (9, 10, Severity.WARNING)],
)
def test_an_error_takes_a_share_of_the_window_and_time_worth_one(
    cost_ms: int, window_ms: int, expected: Severity
) -> None:
    rule = _rule(1, Clear(""), error_share=0.25)
    assert rule.severity_of(_finding(cost_ms * 1_000_000), window_ms * 1_000_000) == expected


def test_a_rule_is_told_what_earlier_findings_are_made_of(facts: Facts) -> None:
    told: list[Claimed] = []

    def listen(_facts: Facts, claimed: Claimed) -> RuleAnswer:
        told.append(claimed)
        return _finding(20, _claims((150, 170)))

    run_rules(facts, [_rule(1, _finding(100, _claims((0, 100)))), Rule("GD990", "a", "A rule", listen)])
    assert {d: list(zip(*claim, strict=True)) for d, claim in told[0].items()} == {0: [(0, 100)]}


def test_two_findings_never_claim_the_same_nanosecond(facts: Facts, caplog: pytest.LogCaptureFixture) -> None:
    outcome = run_rules(
        facts,
        [
            _rule(1, _finding(100, _claims((0, 100)))),
            _rule(2, _finding(100, _claims((99, 199)))),
            _rule(3, _finding(50, _claims((100, 150)))),
        ],
    )
    assert [f.rule.id for f in outcome.findings] == ["GD991", "GD993"]
    assert outcome.unchecked[0][1].defect
    assert "claims time that another finding has claimed" in caplog.text


def test_devices_do_not_claim_each_others_time(facts: Facts) -> None:
    outcome = run_rules(
        facts,
        [_rule(1, _finding(100, _claims((0, 100)))), _rule(2, _finding(100, _claims((0, 100), device=1)))],
    )
    assert [f.finding.cost_ns for f in outcome.findings] == [100, 100]


@pytest.mark.parametrize(("step_us", "severity"), [(900, Severity.INFO), (6_000, Severity.WARNING)])
def test_a_step_or_two_of_a_toy_on_the_cpu_get_hints(
    step_us: float, severity: Severity, tmp_path: Path
) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for i in range(2):
        main.step(i, at=i * step_us, us=step_us)
        main.op("aten::mm", at=i * step_us, us=0.4 * step_us)
        main.frame("train.py(12): train", at=i * step_us, us=step_us)
    found = run_rules(facts_of(trace, tmp_path), RULES).findings
    assert [f.severity for f in found if f.rule.id == "GD102"] == [severity]
