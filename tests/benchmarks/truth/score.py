"""Score: the diagnosis of every case compared with its labels, by rule and by cause."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.outcome import Outcome, RuleFinding
from tb_gpudiag.rules.run import run_rules
from tests.benchmarks.truth import labels
from tests.benchmarks.truth.cases import HEALTHY_KIND, Case
from tests.benchmarks.truth.labels import Labels, label
from tests.builder import Generation
from tests.simulator import Simulated

PRECISION, RECALL = 0.98, 0.95
"""Aims for every rule. A healthy job must have no finding above INFO at all."""

TIE = 0.9
"""Of two planted faults, either may be first if fixing it saves at least this share of what the other
saves."""

SAVING_TOLERANCE = 0.02
"""Of the step window, by which what a fix saves may be outside of the promised range: the machine's noise."""

BUSY = "busy"

EXACT: tuple[Generation, ...] = ("B+", "C1", "C2")
"""Generations with timestamps to the nanosecond. The others lose gaps shorter than a microsecond."""


@dataclass
class RuleScore:
    """How one rule did.

    ranked: cases in which fixing its fault saves most; first: it was listed first there. promised: cases with
    a saving; kept: what the fix saves is in its range.
    """

    right: int = 0
    false: int = 0
    missed: int = 0
    ranked: int = 0
    first: int = 0
    promised: int = 0
    kept: int = 0

    @property
    def precision(self) -> float:
        return self.right / (self.right + self.false) if self.right + self.false else 1.0

    @property
    def recall(self) -> float:
        return self.right / (self.right + self.missed) if self.right + self.missed else 1.0

    @property
    def rank_1(self) -> float:
        return self.first / self.ranked if self.ranked else 1.0


@dataclass
class Score:
    """All cases. confusion: planted cause -> found cause -> ns."""

    cases: Counter[str] = field(default_factory=Counter)  # by kind
    rules: dict[str, RuleScore] = field(default_factory=lambda: {rule: RuleScore() for rule in labels.RULES})
    healthy_alarms: int = 0
    confusion: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    wrong: list[str] = field(default_factory=list)  # one line per mistake

    def add(self, case: Case, run: Simulated, facts: Facts, outcome: Outcome) -> None:
        """Count one diagnosed case."""
        self.cases[case.kind] += 1
        labels = label(case, run)
        self._count_rules(case, labels, {finding.rule.id for finding in outcome.findings})
        alarms = [f.rule.id for f in outcome.findings if f.severity > Severity.INFO]
        if case.kind == HEALTHY_KIND and alarms:
            self.healthy_alarms += 1
            self._note(case, f"a healthy job has {', '.join(alarms)}")
        self._rank(case, run, labels.must, [f for f in outcome.findings if f.finding.cost_ns])
        if case.generation in EXACT and not case.lost and case.kept == 1:
            _confuse(self.confusion, run, facts)

    def _count_rules(self, case: Case, labels: Labels, found: set[str]) -> None:
        for rule, score in self.rules.items():
            score.right += rule in found & labels.must
            if rule in found & labels.must_not:
                score.false += 1
                self._note(case, f"{rule} should not be there")
            if rule in labels.must - found:
                score.missed += 1
                self._note(case, f"{rule} is not found")

    def _rank(self, case: Case, run: Simulated, must: frozenset[str], found: list[RuleFinding]) -> None:
        """Compare the first finding with the fault whose fix saves most, and savings with what fixes save.

        found: the findings with a cost in time, in order.
        """
        planted = [
            fault
            for fault in case.planted
            if fault.rule in must and fault.rule != "GD106" and not fault.rule.startswith(("GD4", "GD9"))
        ]
        if not planted:
            return
        gain = {
            fault.rule: run.truth.window_ns - case.simulate(fault.fixed(case.job)).truth.window_ns
            for fault in planted
        }
        best = max(gain, key=lambda rule: gain[rule])
        score = self.rules[best]
        score.ranked += 1
        if found and gain.get(found[0].rule.id, 0) >= TIE * gain[best] > 0:
            score.first += 1
        else:
            self._note(case, f"{best} should be first, not {found[0].rule.id if found else 'nothing'}")
        for rule, gain_ns in gain.items():
            self._compare_saving(rule, gain_ns, found, SAVING_TOLERANCE * run.truth.window_ns)

    def _compare_saving(self, rule: str, gain_ns: int, found: list[RuleFinding], tolerance_ns: float) -> None:
        savings = [f.finding.saving for f in found if f.rule.id == rule and f.finding.saving is not None]
        if savings:
            low, high = sum(s.low_ns for s in savings), sum(s.high_ns for s in savings)
            self.rules[rule].promised += 1
            self.rules[rule].kept += low - tolerance_ns <= gain_ns <= high + tolerance_ns

    def _note(self, case: Case, mistake: str) -> None:
        faults = " + ".join(fault.name for fault in case.planted) or case.kind
        self.wrong.append(f"{case.kind} ({faults}, {case.generation}, seed {case.seed}): {mistake}")


def score_cases(cases: Iterable[Case]) -> Score:
    """Simulate, diagnose and count every case."""
    score = Score()
    with TemporaryDirectory() as folder:
        for case in cases:
            run = case.simulate()
            facts = case.facts(run, Path(folder))
            score.add(case, run, facts, run_rules(facts, RULES))
    return score


CauseSpan = tuple[int, int, str]
"""(start, end, cause)"""


def _confuse(confusion: dict[str, Counter[str]], run: Simulated, facts: Facts) -> None:
    """Add the step window's idle time by the cause that was planted and the one found at the same instant."""
    truth, device = run.truth, facts.device
    if device is None:
        return
    ledger, shift = device.ledger, facts.window.end_ns - truth.window_end_ns
    columns = (ledger.start_ns, ledger.end_ns, ledger.cause)
    found = [(a, b, Cause(cause).label) for a, b, cause in zip(*(c.tolist() for c in columns), strict=True)]
    planted = [(s.start_ns + shift, s.end_ns + shift, s.cause) for s in truth.segments]
    for start, end, cause in planted:
        confusion[cause][BUSY] += end - start
    for common_ns, cause, found_cause in _overlaps(planted, found):
        confusion[cause][found_cause] += common_ns
        confusion[cause][BUSY] -= common_ns


def _overlaps(planted: list[CauseSpan], found: list[CauseSpan]) -> Iterator[tuple[int, str, str]]:
    """Yield (ns, planted cause, found cause) for spans that overlap; both lists are in order and disjoint."""
    first = 0
    for start, end, cause in planted:
        while first < len(found) and found[first][1] <= start:
            first += 1
        at = first
        while at < len(found) and found[at][0] < end:
            found_start, found_end, found_cause = found[at]
            yield min(end, found_end) - max(start, found_start), cause, found_cause
            at += 1
