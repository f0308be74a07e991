from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Finding, Severity
from tb_gpudiag.rules.doubts import corrected
from tb_gpudiag.rules.idle.host_bound import RULE
from tb_gpudiag.rules.idle.input_pipeline import RULE as LOADING
from tb_gpudiag.rules.rule import Rule
from tb_gpudiag.wording.quantity import Quantity, duration
from tests.builder import HostThread
from tests.rules.stage import STEP_AT, STEP_US, Act, facts_of, figures, finding, one_gap, one_step, severity

LOADER = "torch/utils/data/dataloader.py(720): __next__"
LABEL = "Recording overhead, estimated"


def _frames(pairs: int) -> Act:
    """Build pairs of frames in the gap, which begins at 300 µs, 1 µs each: the inner one begins 0.1 µs after
    the outer one, and ends 0.1 µs before it."""

    def act(main: HostThread, at: float, us: float) -> None:
        main.frame("train.py(30): prepare", at=at, us=us)
        for i in range(pairs):
            main.frame("train.py(40): outer", at=300.5 + i, us=1)
            main.frame("train.py(50): inner", at=300.6 + i, us=0.8)

    return act


def _facts(pairs: int, idle_us: float, folder: Path) -> Facts:
    return facts_of(one_gap(_frames(pairs), idle_us), folder)


def _said(rule: Rule, facts: Facts) -> Finding:
    return corrected(finding(rule.check(facts)), rule, facts)


def _bounds_us(found: Finding) -> tuple[float, ...]:
    least, most, *_ = figures(found)[LABEL]
    assert isinstance(least, Quantity)
    assert isinstance(most, Quantity)
    return least.value / 1e3, most.value / 1e3


def test_estimates_the_overhead_from_the_frames_themselves(tmp_path: Path) -> None:
    found = _said(RULE, _facts(100, 400, tmp_path))
    # 200 frames: 0.1 µs each at least, 0.8 µs at most; before the gap, two more and a launch of 3 µs.
    assert figures(found)[LABEL] == (
        duration(20_000, "at least"),
        duration(164_600, "at most (41.1% of this time)"),
        "for 200 Python frames",
    )
    # 235 of 835, 380 of 980 µs; 0.52 µs each is most likely: 293 of 893.
    assert "without it, the share is about 32.8% (28.2% to 38.8%)" in found.summary


def test_with_few_frames_the_cost_of_one_is_a_constant(tmp_path: Path) -> None:
    found = _said(RULE, _facts(40, 400, tmp_path))
    assert _bounds_us(found) == (8, 68.6)


@pytest.mark.parametrize(
    ("pairs", "expected"), [(20, Severity.ERROR), (85, Severity.ERROR), (87, Severity.WARNING)]
)
def test_is_an_error_only_if_it_is_one_without_the_overhead(
    pairs: int, expected: Severity, tmp_path: Path
) -> None:
    facts = _facts(pairs, 400, tmp_path)  # 395.4 - 1.6 * pairs of 995.4 - 1.6 * pairs µs: 30% with 86.4
    found = _said(RULE, facts)
    assert found.cost_ns == 400_000
    assert severity(RULE, found, facts) == expected


@pytest.mark.parametrize(("pairs", "said"), [(10, True), (9, False)])
def test_a_small_overhead_is_not_mentioned(pairs: int, said: bool, tmp_path: Path) -> None:
    found = _said(RULE, _facts(pairs, 400, tmp_path))  # 4.6 µs before the gap: 20.6 or 19 of 400 µs
    assert (LABEL in figures(found)) == said
    assert ("without it" in found.summary) == said


def test_what_is_recorded_while_the_gpu_works_makes_the_host_late_as_well(tmp_path: Path) -> None:
    def act(main: HostThread, at: float, us: float) -> None:
        main.frame("train.py(30): prepare", at=at, us=us)
        for i in range(30):
            main.frame("train.py(40): outer", at=200.5 + i, us=0.5)

    before = _said(RULE, facts_of(one_gap(act, 400), tmp_path))
    assert _bounds_us(before) == (0, 28.6)


def test_transforms_in_python_are_slowed_down_too(tmp_path: Path) -> None:
    def act(main: HostThread, at: float, us: float) -> None:
        main.frame(LOADER, at=at, us=us)
        for i in range(390):
            main.frame("train.py(40): augment", at=300.5 + i, us=0.5)

    facts = facts_of(one_gap(act, 400), tmp_path)
    found = _said(LOADING, facts)
    assert _bounds_us(found)[1] == 316.6
    assert "without it, the share is about" in found.summary
    assert LOADING.severity_of(found, facts.window.duration_ns) == Severity.WARNING


def test_a_job_on_a_cpu_is_corrected_too(tmp_path: Path) -> None:
    trace, main = one_step(devices=())
    for i in range(300):
        main.frame("train.py(40): outer", at=STEP_AT + 100 + i, us=0.5)
    main.op("aten::mm", at=STEP_AT + 500, us=STEP_US - 500)
    found = _said(RULE, facts_of(trace, tmp_path))
    assert _bounds_us(found)[1] == 240


@pytest.mark.parametrize(("pairs", "expected"), [(10, Severity.WARNING), (40, Severity.INFO)])
def test_is_a_hint_where_even_the_least_overhead_explains_it(
    pairs: int, expected: Severity, tmp_path: Path
) -> None:
    """Of 52 µs, 20 or 80 frames take 0.1 µs each at least: 5% of the rest is left, or less."""
    facts = _facts(pairs, 52, tmp_path)
    assert severity(RULE, _said(RULE, facts), facts) == expected
