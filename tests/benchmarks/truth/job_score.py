"""Score of the rules on jobs of many ranks: which fault, which rank, which cause, and what a fix saves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tb_gpudiag.jobs.report.job_report import build_job_report
from tb_gpudiag.jobs.rules.job_words import part_text
from tb_gpudiag.report import report_pb2 as pb
from tests.benchmarks.truth.jobs import TIME_ERROR, Measured, facts_of, measure
from tests.simulator.jobs import SimulatedJob
from tests.simulator.jobs.cases import HARMLESS_SHARE, JobCase

RULES = ("GD602", "GD603", "GD604", "GD605", "GD606", "GD607")

MUST = 0.05
"""A fault that costs this share of the step must be reported."""

ALWAYS = ("GD605", "GD606")
"""Rules about faults that cost the step nothing."""

SAVING_ERROR = 0.05
"""Aim: the true saving is in the range that a finding states, or this share of the step away from it."""

BEFORE_COMPUTING = ("tp", "ep", "pp")
"""Parallelisms that wait for communication by design: GD607 may say so."""

PRECISION, RECALL, FIRST = 0.95, 0.9, 0.9

_RANKS = re.compile(r"\b[Rr]anks? ((?:\d+(?:–\d+)?(?:, | and )?)+)")


@dataclass
class RuleScore:
    """How one rule did. named: found with the right ranks, and for GD602 the right cause; first: and listed
    before all other findings. saved: of `savings`, stated savings near the true one."""

    right: int = 0
    false: int = 0
    missed: int = 0
    named: int = 0
    first: int = 0
    savings: int = 0
    saved: int = 0

    @property
    def precision(self) -> float:
        return self.right / (self.right + self.false) if self.right + self.false else 1.0

    @property
    def recall(self) -> float:
        return self.right / (self.right + self.missed) if self.right + self.missed else 1.0


@dataclass
class JobScore:
    """All jobs. clocks: jobs on several hosts whose offsets are known; clocks_right: within the residual."""

    jobs: int = 0
    healthy: int = 0
    healthy_alarms: int = 0
    matched: int = 0
    collectives: int = 0
    clocks: int = 0
    clocks_right: int = 0
    worst_time_error: float = 0.0
    slowdowns: int = 0
    slowdowns_right: int = 0
    rules: dict[str, RuleScore] = field(default_factory=lambda: {rule: RuleScore() for rule in RULES})
    wrong: list[str] = field(default_factory=list)

    def add(self, case: JobCase, run: SimulatedJob, measured: Measured, report: pb.JobReport) -> None:
        """Count one job."""
        self.jobs += 1
        self._add_facts(case, run, measured)
        found = [finding for finding in report.findings if finding.rule in RULES]
        alarms = [finding for finding in found if finding.severity > pb.Finding.INFO]
        must, may = labels(run)
        if must is None and run.cost_share < HARMLESS_SHARE:
            self.healthy += 1
            wrong = [finding for finding in alarms if finding.rule not in may]
            self.healthy_alarms += bool(wrong)
        for rule in {finding.rule for finding in alarms} - {must, *may}:
            self.rules[rule].false += 1
            self._note(case, f"{rule} should not be there: {_title(alarms, rule)}")
        if must is not None:
            self._add_must(case, run, must, found)
        self._add_slowdown(case, run, report)

    def _add_facts(self, case: JobCase, run: SimulatedJob, measured: Measured) -> None:
        self.matched += measured.matched
        self.collectives += measured.of
        self.worst_time_error = max(self.worst_time_error, measured.waiting_error, measured.transfer_error)
        if max(measured.waiting_error, measured.transfer_error) > TIME_ERROR:
            self._note(case, "waiting or transfer is wrong")
        if measured.matched < measured.of and run.truth.rule != "GD605":
            self._note(case, f"{measured.matched} of {measured.of} collectives are matched")
        if run.job.hosts > 1 and measured.clocks_known:
            self.clocks += 1
            self.clocks_right += measured.clocks_right
            if not measured.clocks_right:
                self._note(case, f"a clock is wrong by {measured.clock_error_ns / 1e3:.1f} µs")

    def _add_must(self, case: JobCase, run: SimulatedJob, must: str, found: list[pb.Finding]) -> None:
        score = self.rules[must]
        own = [finding for finding in found if finding.rule == must]
        if not own:
            score.missed += 1
            self._note(case, f"{must} is not found: {run.cost_share:.1%} of the step")
            return
        score.right += 1
        if not _names(own[0], run):
            self._note(case, f"not {run.truth.cause} of {run.truth.suspects}: {own[0].title}")
        else:
            score.named += 1
            if found[0] is own[0]:
                score.first += 1
            else:
                self._note(case, f"{found[0].rule} is first: {found[0].title}")
        if must not in ALWAYS and own[0].HasField("saving"):
            score.savings += 1
            error = _saving_error(own[0], run)
            score.saved += error <= SAVING_ERROR
            if error > SAVING_ERROR:
                self._note(case, f"{must} would save {run.saving_share:.1%} of the step, {error:.1%} off")

    def _add_slowdown(self, case: JobCase, run: SimulatedJob, report: pb.JobReport) -> None:
        if run.truth.rule not in ("GD602", "GD603") or not report.HasField("slowdown"):
            return
        true = run.truth.step_ns / run.fixed.truth.step_ns
        right = abs(report.slowdown.s / true - 1) <= SAVING_ERROR
        self.slowdowns += 1
        self.slowdowns_right += right
        if not right:
            self._note(case, f"slowdown {report.slowdown.s:.3f}, not {true:.3f}")

    def _note(self, case: JobCase, mistake: str) -> None:
        job = case.job
        shape = f"{job.parallelism} {job.ranks} ranks, {job.hosts} hosts, degree {job.degree}"
        self.wrong.append(f"{case.name} ({shape}, seed {case.seed}): {mistake}")


def labels(run: SimulatedJob) -> tuple[str | None, set[str]]:
    """Return the rule that must report, or None, and those that may."""
    truth, may = run.truth, set[str]()
    if run.job.parallelism in BEFORE_COMPUTING or truth.rule == "GD604":
        may.add("GD607")
    if truth.rule is None:
        return None, may
    if truth.rule in ALWAYS or run.cost_share >= MUST:
        return truth.rule, may
    return None, may | ({truth.rule} if run.cost_share >= HARMLESS_SHARE else set())


def _title(findings: list[pb.Finding], rule: str) -> str:
    return next(finding.title for finding in findings if finding.rule == rule)


def _names(finding: pb.Finding, run: SimulatedJob) -> bool:
    """Return whether a finding names the fault's ranks, and for a slow rank its cause."""
    truth, job = run.truth, run.job
    if truth.ranks:
        found = ranks_in(finding.title)
        if truth.rule == "GD605" and job.ranks == 2:
            return bool(found)  # two ranks differ: neither is the odd one
        if truth.rule == "GD604":
            return bool(found) and (found <= set(truth.suspects) or not truth.suspects)
        if found != set(truth.ranks):
            return False
    if truth.rule != "GD602":
        return True
    assert truth.cause is not None
    if truth.cause == "slow_gpu":
        return "slower" in finding.summary
    return any(evidence.label == f"More {part_text(truth.cause)}" for evidence in finding.evidence)


def ranks_in(text: str) -> set[int]:
    """Return the ranks that a title names: "rank 3", "ranks 0, 2 and 4–7"."""
    found: set[int] = set()
    for listed in _RANKS.findall(text):
        for one in re.findall(r"\d+(?:–\d+)?", listed):
            first, _, last = one.partition("–")
            found.update(range(int(first), int(last or first) + 1))
    return found


def _saving_error(finding: pb.Finding, run: SimulatedJob) -> float:
    """Return how far the true saving per step is outside of the stated range, as a share of the step."""
    step_us = run.truth.step_ns / 1e3
    true = run.saving_share * step_us
    low, high = finding.saving.low_per_step_us, finding.saving.high_per_step_us
    return max(low - true, true - high, 0.0) / step_us


def score_jobs(cases: Iterable[JobCase]) -> JobScore:
    """Simulate, diagnose and count every job."""
    score = JobScore()
    for case in cases:
        run = case.simulate()
        with TemporaryDirectory() as folder:
            facts = facts_of(case, run, Path(folder))
        score.add(case, run, measure(case, run, facts), build_job_report(facts))
    return score


def job_table(score: JobScore) -> Iterator[str]:
    yield f"{score.jobs} simulated jobs of 2 to 64 ranks. A fault that costs {MUST:.0%} of the step or more"
    yield "must be found. named: with the right ranks and cause; first: before all other findings."
    counts = f"{'right':>7}{'false':>7}{'missed':>8}{'precision':>11}{'recall':>9}"
    yield f"{'rule':8}{counts}{'named':>7}{'first':>7}{'saving right':>14}"
    for rule, one in score.rules.items():
        counts = f"{one.right:7}{one.false:7}{one.missed:8}{one.precision:11.3f}{one.recall:9.3f}"
        savings = f"{one.saved} of {one.savings}" if one.savings else "-"
        yield f"{rule:8}{counts}{one.named:7}{one.first:7}{savings:>14}"
    yield f"healthy jobs with a false alarm: {score.healthy_alarms} of {score.healthy} (aim: 0)"
    yield f"collectives matched: {score.matched} of {score.collectives}; clocks within their residual: "
    yield f"{score.clocks_right} of {score.clocks} jobs; worst error of a rank's waiting or transfer: "
    yield f"{score.worst_time_error:.2%} of the window; slowdown within {SAVING_ERROR:.0%}: "
    yield f"{score.slowdowns_right} of {score.slowdowns}"
    yield from score.wrong
