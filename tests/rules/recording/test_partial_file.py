from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.doubts import ABOUT_TIME
from tb_gpudiag.rules.recording.partial_file import RULE
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.wording.quantity import number
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of, figures, finding, healthy, is_clear


def _cut(folder: Path, *, age_s: int) -> Facts:
    path = healthy().write(folder)
    path.write_bytes(path.read_bytes()[:-700])
    written = path.stat().st_mtime - age_s
    os.utime(path, (written, written))
    return Facts(read_trace(str(path)))


def _with_bad_events(bad: int, good: int) -> TraceBuilder:
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(good):
        main.op("aten::add", at=10 * i, us=5)
    for _ in range(bad):
        trace.raw({"ph": "X", "name": "aten::add", "cat": "cpu_op", "ts": "yesterday", "dur": 1})
    return trace


def test_a_truncated_file_is_a_warning(tmp_path: Path) -> None:
    facts = _cut(tmp_path, age_s=3600)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.WARNING


def test_a_file_still_being_written_is_a_hint(tmp_path: Path) -> None:
    facts = _cut(tmp_path, age_s=0)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO
    assert "still being written" in found.title


@pytest.mark.parametrize(("bad", "severity"), [(1, Severity.INFO), (30, Severity.WARNING)])
def test_malformed_events_are_counted(bad: int, severity: Severity, tmp_path: Path) -> None:
    facts = facts_of(_with_bad_events(bad, good=500), tmp_path)
    found = finding(RULE.check(facts))
    assert figures(found)["Malformed events"] == (number(bad),)
    assert RULE.severity_of(found, facts.window.duration_ns) is severity


def _operators_left(left: Callable[[int], bool], folder: Path, operators: int = 300) -> Facts:
    """A step of operators with a kernel each, of which a tool left some with all that belongs to them."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=10 * operators)
    for i in range(operators):
        main.op("aten::add", at=10 * i, us=9)
        if left(i):
            main.launch("add", at=10 * i + 2, us=4, runs_at=10 * i + 7, runs_us=9)
    whole = trace.document()
    numbers = iter(range(operators))
    some = [e for e in whole["traceEvents"] if e["name"] != "aten::add" or left(next(numbers))]
    path = trace.write(folder)
    path.write_text(json.dumps({**whole, "traceEvents": some}))
    return Facts(read_trace(str(path)))


def test_a_file_with_events_removed_says_nothing_about_time(tmp_path: Path) -> None:
    facts = _operators_left(lambda i: i % 5 in (0, 3), tmp_path)
    outcome = run_rules(facts, RULES)
    assert [found.rule.id for found in outcome.findings if found.severity > Severity.INFO] == ["GD906"]
    assert {
        rule.family for rule, answer in outcome.unchecked if "events were removed" in answer.reason
    } >= ABOUT_TIME
    assert figures(finding(RULE.check(facts)))["Operators left"] == (number(121),)  # and the step's mark
    verdict = find_verdict(facts, outcome.findings)
    assert verdict.limiter == "unknown"
    assert "run from 1 to 300, and 121 of them are left" in verdict.sentence


@pytest.mark.parametrize(
    ("left", "operators"),
    [
        pytest.param(lambda i: i % 10 != 0, 300, id="one in ten"),
        pytest.param(lambda i: not 600 <= i < 1_200, 10_000, id="a stretch", marks=pytest.mark.slow),
    ],
)
def test_a_file_without_a_small_part_of_its_events_is_not_judged(
    left: Callable[[int], bool], operators: int, tmp_path: Path
) -> None:
    facts = _operators_left(left, tmp_path, operators)
    outcome = run_rules(facts, RULES)
    assert outcome.findings[0].rule.id == "GD906"
    assert find_verdict(facts, outcome.findings).limiter == "unknown"


def test_threads_that_leave_numbers_are_no_removed_events(tmp_path: Path) -> None:
    """Each of twenty threads takes 512 numbers and needs six."""
    trace = TraceBuilder()
    for thread in range(20):
        worker = trace.thread()
        for i in range(6):
            worker.op("aten::add", at=100 * thread + 10 * i, us=9)
    whole = trace.document()
    operators = [e for e in whole["traceEvents"] if e["name"] == "aten::add"]
    for i, event in enumerate(sorted(operators, key=lambda e: e["ts"])):
        event["args"]["External id"] = 1 + 512 * (i // 6) + i % 6
    path = trace.write(tmp_path)
    path.write_text(json.dumps(whole))
    facts = Facts(read_trace(str(path)))
    assert facts.operator_numbers.known == 120
    assert is_clear(RULE.check(facts))


def test_a_few_numbers_far_away_are_no_removed_events(tmp_path: Path) -> None:
    """Six of 252, from another counter."""
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(252):
        main.op("aten::add", at=10 * i, us=9)
    whole = trace.document()
    operators = [e for e in whole["traceEvents"] if e["name"] == "aten::add"]
    for i, event in enumerate(sorted(operators, key=lambda e: e["ts"])):
        event["args"]["External id"] = 1 + i + 100_000 * (i % 42 == 20)
    path = trace.write(tmp_path)
    path.write_text(json.dumps(whole))
    assert is_clear(RULE.check(Facts(read_trace(str(path)))))


@pytest.mark.parametrize(
    "left",
    [lambda _: True, lambda i: i >= 150, lambda i: i % 50 != 0, lambda i: i % 5 == 0 and i < 200],
    ids=["all", "a part in time", "one in fifty is gone", "too few to tell"],
)
def test_other_files_are_judged(left: Callable[[int], bool], tmp_path: Path) -> None:
    facts = _operators_left(left, tmp_path)
    assert is_clear(RULE.check(facts))
    assert "removed" not in find_verdict(facts).sentence
