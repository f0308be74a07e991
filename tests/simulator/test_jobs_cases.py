"""The benchmark set of simulated jobs: what is drawn, and that its faults cost what they should."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice

import pytest

from tests.simulator.jobs import DistributedJob, JobFault, simulate_job
from tests.simulator.jobs.cases import COUNTS, HARMLESS_SHARE, HEALTHY, LEAST_SHARE, cases, lead_ms
from tests.simulator.jobs.settings import RULES

pytestmark = pytest.mark.slow


def test_the_same_seed_draws_the_same_jobs() -> None:
    names = ("mismatch", "not_overlapped", "healthy")
    first = list(cases(3, names))
    assert list(cases(3, names)) == first
    assert list(cases(4, names)) != first
    assert Counter(case.name for case in first) == {
        "mismatch": COUNTS["mismatch"],
        "not_overlapped": COUNTS["not_overlapped"],
        "healthy": HEALTHY,
    }


def test_a_fault_costs_what_it_should() -> None:
    (case,) = islice(cases(2, ("gc",)), 1)
    assert case.simulate().cost_share > 0.8 * LEAST_SHARE


def test_host_work_within_the_lead_costs_nothing() -> None:
    job = DistributedJob("ddp", ranks=2, steps=4)
    lead = lead_ms(simulate_job(job), 1)
    hidden = simulate_job(replace(job, fault=JobFault("python", (1,), 0.3 * lead)))
    assert abs(hidden.cost_share) < HARMLESS_SHARE
    late = simulate_job(replace(job, fault=JobFault("python", (1,), 2 * lead)))
    assert late.cost_share > 0.05


def test_every_rule_has_cases() -> None:
    rules = Counter[str]()
    for kind, count in COUNTS.items():
        rules[RULES[kind]] += count
    assert set(rules) == {"GD602", "GD603", "GD604", "GD605", "GD606", "GD607"}
    assert 35 <= rules.total() <= 45
    assert HEALTHY >= 10
