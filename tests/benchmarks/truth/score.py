"""Score: the diagnosis of every case beside its labels, by rule and by cause."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.rule import Severity
from tb_gpudiag.rules.run import Outcome, run_rules
from tests.benchmarks.truth.cases import HEALTHY_KIND, Case
from tests.benchmarks.truth.labels import RULES, label
from tests.builder import Generation
from tests.simulator import Simulated

PRECISION, RECALL = 0.98, 0.95
"""The aims for every rule; a healthy job must have no finding above INFO at all."""

TIE = 0.9
"""Of two planted faults, either may be first if mending it gives this share of what the other gives."""

BUSY = "busy"

EXACT: tuple[Generation, ...] = ("B+", "C1", "C2")
"""Generations with stamps to the nanosecond; the earlier ones cut gaps shorter than a microsecond away."""


@dataclass
class RuleScore:
    """How one rule did. `ranked` are the cases in which its fault gives back most when it is mended."""

    right: int = 0
    false: int = 0
    missed: int = 0
    ranked: int = 0
    first: int = 0

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
    """Over all cases. confusion: planted cause -> found cause -> ns."""

    cases: Counter[str] = field(default_factory=Counter)  # by kind
    rules: dict[str, RuleScore] = field(default_factory=lambda: {rule: RuleScore() for rule in RULES})
    healthy_alarms: int = 0
    confusion: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    wrong: list[str] = field(default_factory=list)  # one line a mistake

    def add(self, case: Case, run: Simulated, facts: Facts, outcome: Outcome) -> None:
        """Count one diagnosed case."""
        self.cases[case.kind] += 1
        found = [finding.rule.id for finding in outcome.findings]
        labels = label(case, run)
        for rule, score in self.rules.items():
            score.right += rule in found and rule in labels.must
            if rule in found and rule in labels.must_not:
                score.false += 1
                self._note(case, f"{rule} should not be there")
            if rule not in found and rule in labels.must:
                score.missed += 1
                self._note(case, f"{rule} is not found")
        alarms = [f.rule.id for f in outcome.findings if f.severity > Severity.INFO]
        if case.kind == HEALTHY_KIND and alarms:
            self.healthy_alarms += 1
            self._note(case, f"a healthy job has {', '.join(alarms)}")
        self._rank(case, run, labels.must, [f.rule.id for f in outcome.findings if f.finding.cost_ns])
        if case.generation in EXACT and not case.lost and case.kept == 1:
            _confuse(self.confusion, run, facts)

    def _rank(self, case: Case, run: Simulated, must: frozenset[str], found: list[str]) -> None:
        """The first finding with a cost in time, beside what mending each planted fault gives."""
        planted = [
            fault
            for fault in case.planted
            if fault.rule in must and fault.rule != "GD106" and not fault.rule.startswith(("GD4", "GD9"))
        ]
        if not planted:
            return
        gain = {
            fault.rule: run.truth.window_ns - case.simulate(fault.mended(case.job)).truth.window_ns
            for fault in planted
        }
        best = max(gain, key=lambda rule: gain[rule])
        score = self.rules[best]
        score.ranked += 1
        if found and gain.get(found[0], 0) >= TIE * gain[best] > 0:
            score.first += 1
        else:
            self._note(case, f"{best} should be first, not {found[0] if found else 'nothing'}")

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
            score.add(case, run, facts, run_rules(facts))
    return score


def _confuse(confusion: dict[str, Counter[str]], run: Simulated, facts: Facts) -> None:
    """The step window's time by what was planted and what was found at the same instant."""
    truth, device = run.truth, facts.device
    if device is None:
        return
    ledger, shift = device.ledger, facts.window.end_ns - truth.window_end_ns
    columns = (ledger.start_ns, ledger.end_ns, ledger.cause)
    found = [(a, b, Cause(cause).label) for a, b, cause in zip(*(c.tolist() for c in columns), strict=True)]
    told = [(s.start_ns + shift, s.end_ns + shift, s.cause) for s in truth.segments]
    unmatched = Counter(
        {cause: sum(b - a for a, b, c in told if c == cause) for cause in {c for *_, c in told}}
    )
    at = 0
    for start, end, cause in told:
        while at < len(found) and found[at][1] <= start:
            at += 1
        i = at
        while i < len(found) and found[i][0] < end:
            common = min(end, found[i][1]) - max(start, found[i][0])
            confusion[cause][found[i][2]] += common
            unmatched[cause] -= common
            i += 1
    for cause, rest in unmatched.items():
        confusion[cause][BUSY] += rest
