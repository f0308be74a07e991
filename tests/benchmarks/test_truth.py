"""A small fixed part of the benchmark against simulated truth; all of it with `make bench`."""

from __future__ import annotations

import pytest

from tb_gpudiag.facts.core.causes import Cause
from tests.benchmarks.truth.__main__ import print_all
from tests.benchmarks.truth.cases import HEALTHY_KIND, cases
from tests.benchmarks.truth.fixes import REPLAYED, TOLERANCE, fixed_step
from tests.benchmarks.truth.memory import LEAKING, RANK_1, SLOPE_ERROR, memory_cases, score_memory
from tests.benchmarks.truth.pairs import compared
from tests.benchmarks.truth.score import BUSY, PRECISION, RECALL, Score, score_cases
from tests.benchmarks.truth.traps import TRAPS, Trap, score_traps
from tests.builder import GENERATIONS
from tests.simulator import FAULTS, Fault
from tests.simulator.scenarios import one_per_rule

SETTINGS = 1
SEED = 1

EXACT = ("GD101", "GD301", "GD302")
"""Rules with a fix that the simulator knows exactly."""

RIGHT_CAUSE = 0.99
"""Share of the planted idle time whose cause is found. A trace without stacks does not show, for example, the
profiler's own Python."""


@pytest.fixture(scope="module")
def score() -> Score:
    """Of cases with one fault per rule, and with every fault of EXACT."""
    left_out = {f.name for f in FAULTS if f not in one_per_rule() and f.rule not in EXACT}
    return score_cases(case for case in cases(SETTINGS, SEED) if case.kind not in left_out)


@pytest.mark.slow
def test_every_fault_and_every_generation_is_drawn() -> None:
    drawn = list(cases(20, SEED))
    assert {fault.name for case in drawn for fault in case.planted} == {f.name for f in FAULTS if f.rule}
    for kind in {case.kind for case in drawn}:
        assert len([case for case in drawn if case.kind == kind]) >= 20
        assert {case.generation for case in drawn if case.kind == kind} == set(GENERATIONS)
    assert len({case.kind for case in drawn}) >= 12


def test_the_same_seed_draws_the_same_cases() -> None:
    assert list(cases(3, SEED)) == list(cases(3, SEED))
    assert list(cases(3, SEED)) != list(cases(3, SEED + 1))


@pytest.mark.slow
def test_no_rule_is_wrong(score: Score) -> None:
    """No diagnosis of so few cases may be wrong, except for ranks, which two faults may swap."""
    assert [mistake for mistake in score.wrong if "should be first" not in mistake] == []
    assert score.healthy_alarms == 0
    assert score.cases[HEALTHY_KIND] == 2 * SETTINGS
    assert sum(one.right for one in score.rules.values()) > len(one_per_rule())


@pytest.mark.slow
def test_the_planted_fault_comes_first(score: Score) -> None:
    ranked = sum(one.ranked for one in score.rules.values())
    assert ranked >= SETTINGS * len(one_per_rule()) // 2
    assert sum(one.first for one in score.rules.values()) >= 0.9 * ranked


@pytest.mark.slow
def test_what_fixes_save_is_in_the_promised_range(score: Score) -> None:
    promised = sum(one.promised for one in score.rules.values())
    assert promised >= SETTINGS * len(one_per_rule()) // 2
    assert sum(one.kept for one in score.rules.values()) >= 0.85 * promised
    for rule in EXACT:
        assert score.rules[rule].kept >= 0.8 * score.rules[rule].promised


@pytest.mark.slow
def test_idle_time_is_attributed_to_the_planted_cause(score: Score) -> None:
    assert {cause for row in score.confusion.values() for cause in row} <= {c.label for c in Cause} | {BUSY}
    right = sum(row[cause] for cause, row in score.confusion.items())
    assert right >= RIGHT_CAUSE * sum(row.total() for row in score.confusion.values())


@pytest.mark.slow
@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_no_trap_is_walked_into(trap: Trap) -> None:
    (score,) = score_traps(1, SEED, [trap]).values()
    assert score.wrong == []
    assert score.cases == score.right == 1


@pytest.mark.slow
def test_leaks_are_found_at_their_site_and_nothing_else_is_reported_as_one() -> None:
    scores = score_memory(memory_cases(1, SEED))
    assert [mistake for one in scores.values() for mistake in one.wrong] == []
    assert sum(one.alarms for one in scores.values()) == 0
    found = sum(one.found for one in scores.values())
    assert found >= len(LEAKING)
    assert sum(one.first_site for one in scores.values()) >= RANK_1 * found
    assert max(one.worst_slope_error for one in scores.values()) <= SLOPE_ERROR


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", [fault for fault in REPLAYED if fault in one_per_rule()], ids=lambda fault: fault.name
)
def test_estimated_savings_of_a_fix_are_near_the_simulated_ones(fault: Fault) -> None:
    """Compare the step time without what the fix removes, replayed and simulated."""
    step = fixed_step(fault, 1.2, seed=SEED, noise=0.05)
    assert step is not None
    assert abs(step.error) <= TOLERANCE
    assert step.true_ns < step.before_ns


def test_real_pairs(shared_traces: object) -> None:
    """The measured time of the fixed job is within 10% of the predicted range."""
    rows = list(compared())
    assert rows
    for row in rows:
        assert 0.9 * row.least_ms <= row.measured_ms <= 1.1 * row.most_ms
        assert row.measured_ms < row.before_ms


@pytest.mark.benchmark
@pytest.mark.timeout(1800)
def test_truth(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print()
        score = print_all(settings=20, seed=0)
    assert all(one.precision >= PRECISION and one.recall >= RECALL for one in score.rules.values())
    assert score.healthy_alarms == 0
