from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.recording.lost_kernels import RULE
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.shared.odd_recordings import LEAST_SHARE, SPOILS_SHARE
from tb_gpudiag.wording.quantity import duration
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of, figures, finding, healthy, is_clear, one_gap


def lost_gap(idle_us: float) -> TraceBuilder:
    """A step with a gap of this length, whose kernel was lost: the host launched it before the gap began."""
    return one_gap(lambda main, at, us: main.call("cudaLaunchKernel", at=at, us=5), idle_us)


def test_lost_kernels_come_first_and_are_no_fault_of_the_host(tmp_path: Path) -> None:
    facts = facts_of(lost_gap(1_000 * SPOILS_SHARE + 1), tmp_path)
    found = finding(RULE.check(facts))
    assert "The kernels of 1 of 3 launches are missing" in found.title
    assert figures(found)["Unrecorded time"][0] == duration(107_000)
    first = run_rules(facts, RULES).findings[0]
    assert (first.rule.id, first.severity) == ("GD910", Severity.WARNING)
    assert not any(f.finding.cost_ns for f in run_rules(facts, RULES).findings)


def test_few_are_a_hint_behind_the_others(tmp_path: Path) -> None:
    facts = facts_of(lost_gap(1_000 * LEAST_SHARE + 5), tmp_path)
    found = finding(RULE.check(facts))
    assert (found.severity, found.leads) == (None, False)


@pytest.mark.parametrize("build", [healthy, lambda: one_gap(lambda *_: None, 400)])
def test_nothing_is_missing(build: object, tmp_path: Path) -> None:
    assert callable(build)
    assert is_clear(RULE.check(facts_of(build(), tmp_path)))


def test_kernels_that_still_waited_when_the_recording_ended_are_a_hint(tmp_path: Path) -> None:
    trace = healthy()
    trace.thread("other").call("cudaLaunchKernel", at=1_090, us=5)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert (found.severity, found.leads) == (None, False)
    assert "still waiting when the recording ended" in found.summary


def test_it_comes_first_if_most_launches_lack_their_kernels(tmp_path: Path) -> None:
    trace = healthy()
    for i in range(20):
        trace.thread("other").call("cudaLaunchKernel", at=1_085 + i / 4, us=0.2)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert (found.severity, found.leads) == (Severity.WARNING, True)
