"""A host that is ahead of the GPU when the recording begins, and then falls behind or does not."""

from __future__ import annotations

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.shared.slowed_recording import lost_lead
from tb_gpudiag.rules.verdict import find_verdict
from tests.builder import TraceBuilder
from tests.facts import facts_of
from tests.real_traces import first_in
from tests.with_each import with_each

KERNEL_US = 100.0
LAUNCHES = 20


def job(*, launch_every_us: float, queued_us: float, steps: int = 4, sync: bool = False) -> TraceBuilder:
    """A job whose host launches a kernel of 100 µs at this interval. Work of this length is queued when the
    recording begins. sync: each step ends with a wait for the GPU."""
    trace = TraceBuilder()
    main = trace.thread()
    if queued_us:
        trace.kernel("before", at=0, us=queued_us)
    host = gpu = 0.0
    gpu = queued_us
    for number in range(steps):
        began = host
        for _ in range(LAUNCHES):
            runs_at = max(gpu, host + 7)
            main.frame("train.py(12): train", at=host, us=launch_every_us)
            main.launch("gemm", at=host, us=5, runs_at=runs_at, runs_us=KERNEL_US)
            gpu = runs_at + KERNEL_US
            host += launch_every_us
        if sync:
            main.sync("cudaDeviceSynchronize", at=host, us=max(gpu - host, 0) + 5)
            host = max(gpu, host) + 5
        main.step(number, at=began, us=host - began)
    return trace


def findings(facts: Facts) -> dict[str, Severity]:
    return {f.rule.id: f.severity for f in run_rules(facts, RULES).findings}


def test_a_host_that_loses_its_lead_was_slowed_by_the_recording() -> None:
    """What it seems to cost is the profiler's: no error, no saving, no limiter, and a question first."""
    facts = facts_of(job(launch_every_us=250, queued_us=2_000))
    lead = lost_lead(facts)
    assert lead is not None
    assert lead.lead_ns == pytest.approx(1_695_000, rel=0.05)
    assert lead.starved_share == pytest.approx(0.6, rel=0.05)
    outcome = run_rules(facts, RULES)
    first, *others = outcome.findings
    assert (first.rule.id, first.severity) == ("GD908", Severity.WARNING)
    assert "without the profiler" in first.finding.fix.text
    host = [f for f in others if f.finding.cost_ns]
    assert host
    assert all(f.severity is Severity.INFO and f.finding.saving is None for f in host)
    assert not outcome.plan
    verdict = find_verdict(facts)
    assert verdict.limiter == "unknown"
    assert "The recording itself probably slows the host" in verdict.sentence


@with_each(
    "jobs",
    [
        {"launch_every_us": 20.0, "queued_us": 1_000.0},  # stays ahead
        {"launch_every_us": 150.0, "queued_us": 0.0},  # is behind from the start
        {"launch_every_us": 150.0, "queued_us": 200.0},  # a little work was queued, as always
        {"launch_every_us": 150.0, "queued_us": 1_000.0, "steps": 2},  # too short to tell
    ],
)
def test_other_jobs_are_judged_by_what_they_show(jobs: dict[str, float]) -> None:
    facts = facts_of(job(**jobs))  # type: ignore[arg-type]
    assert lost_lead(facts) is None
    assert "The recording itself" not in find_verdict(facts).sentence


def test_a_wait_that_empties_the_queue_is_no_slow_recording() -> None:
    facts = facts_of(job(launch_every_us=20, queued_us=1_000, sync=True))
    assert lost_lead(facts) is None


@pytest.mark.real
def test_public_recordings(shared_traces: object) -> None:
    slowed = first_in("h100_nanogpt_slowed_by_profiler")
    lead = lost_lead(slowed)
    assert lead is not None
    assert lead.lead_ns == pytest.approx(48e6, rel=0.05)
    assert findings(slowed)["GD908"] is Severity.WARNING
    assert Severity.ERROR not in findings(slowed).values()
    for healthy in ("h100_nanogpt_before_hook", "h100_nanogpt_after_hook", "mi300_resnet_checkpoint"):
        assert lost_lead(first_in(healthy)) is None
    assert "GD904" not in findings(first_in("h100_nanogpt_before_hook"))


@pytest.mark.parametrize(("prefill_us", "slowed"), [(9_000.0, False), (1_800.0, True)])
def test_a_host_that_is_ahead_after_longer_recorded_work_was_not_slowed(
    prefill_us: float, slowed: bool
) -> None:
    """A server's prefill keeps the GPU busy while the host launches the first decode steps. Part of a step
    that was recorded before the first whole one does not."""
    trace = job(launch_every_us=250, queued_us=prefill_us)
    trace.thread().launch("prefill", at=-100, us=5, runs_at=-90, runs_us=prefill_us + 90)
    assert (lost_lead(facts_of(trace)) is not None) is slowed
