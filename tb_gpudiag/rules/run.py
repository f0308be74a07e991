"""Runs the rules. A rule that crashes becomes "could not check", never a dead page."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tb_gpudiag.facts.intervals import EMPTY, Intervals, subtract, union
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.format import one_line, time_ns
from tb_gpudiag.rules.rule import Answer, CannotTell, Clear, Evidence, Finding, Rule, Saving, Severity

if TYPE_CHECKING:
    from tb_gpudiag.facts.facts import Facts

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """A finding with the rule that made it and the severity that the rule's policy gives it."""

    rule: Rule
    finding: Finding
    severity: Severity


@dataclass(frozen=True)
class Outcome:
    """What all rules answered. Findings: what gives back most first. The others: by id."""

    findings: list[Found]
    clear: list[tuple[Rule, Clear]]
    unchecked: list[tuple[Rule, CannotTell]]


def run_rules(facts: Facts, rules: Sequence[Rule] = RULES) -> Outcome:
    """Every rule once. Never raises for what a rule does."""
    found: list[tuple[Rule, Finding]] = []
    clear: list[tuple[Rule, Clear]] = []
    unchecked: list[tuple[Rule, CannotTell]] = []
    for rule in rules:
        answer = _ask(rule, facts)
        if isinstance(answer, Clear):
            clear.append((rule, answer))
        elif isinstance(answer, CannotTell):
            unchecked.append((rule, answer))
        else:
            found += [(rule, finding) for finding in (answer if isinstance(answer, list) else [answer])]
    kept, explained = _claim_once(found)
    window_ns = facts.window.duration_ns
    findings = [Found(rule, finding, rule.severity_of(finding, window_ns)) for rule, finding in kept]
    findings.sort(key=lambda f: (-_gives_back(f.finding), -f.finding.cost_ns, -f.severity, f.rule.id))
    return Outcome(findings, sorted(clear + explained, key=_id), sorted(unchecked, key=_id))


def _id(answer: tuple[Rule, object]) -> str:
    return answer[0].id


def _ask(rule: Rule, facts: Facts) -> Answer:
    try:
        return rule.check(facts) or Clear("nothing found")
    except Exception as error:  # a rule's bug must not cost the user the other findings
        log.exception("rule %s (%s) crashed", rule.id, rule.name)
        return CannotTell(f"could not check: {type(error).__name__}: {one_line(str(error), 200)}")


def _gives_back(finding: Finding) -> int:
    return finding.saving.high_ns if finding.saving else finding.cost_ns


def _claim_once(
    found: list[tuple[Rule, Finding]],
) -> tuple[list[tuple[Rule, Finding]], list[tuple[Rule, Clear]]]:
    """No nanosecond is claimed twice: the earlier rule keeps it, the later one's cost and saving shrink."""
    taken: dict[int, Intervals] = {}
    kept: list[tuple[Rule, Finding]] = []
    explained: list[tuple[Rule, Clear]] = []
    for rule, finding in found:
        left = _without(finding, taken)
        if left is None:
            explained.append((rule, Clear(f"the {time_ns(finding.cost_ns)} it saw have an earlier cause")))
            continue
        kept.append((rule, left))
        for device, claim in left.claims.items():
            before = taken.get(device, EMPTY)
            taken[device] = union(np.r_[before.start, claim.start], np.r_[before.end, claim.end])
    return kept, explained


def _without(finding: Finding, taken: dict[int, Intervals]) -> Finding | None:
    """The finding less what others hold already; None where nothing is left of it."""
    claims = {device: subtract(claim, taken.get(device, EMPTY)) for device, claim in finding.claims.items()}
    twice_ns = sum(finding.claims[device].total - claim.total for device, claim in claims.items())
    if not twice_ns:
        return finding
    if twice_ns >= finding.cost_ns:
        return None
    saving = finding.saving
    if saving is not None:
        saving = Saving(max(0, saving.low_ns - twice_ns), max(0, saving.high_ns - twice_ns), saving.basis)
    # The rule's own words are about all that it saw: say how much of that is not in its cost.
    evidence = [*finding.evidence, Evidence("counted by another finding already", time_ns(twice_ns))]
    return replace(
        finding, cost_ns=finding.cost_ns - twice_ns, saving=saving, claims=claims, evidence=evidence
    )
