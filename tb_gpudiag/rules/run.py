"""Runs the rules. A rule that crashes becomes "could not check", never a dead page."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, intersect, union
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.rule import Answer, CannotTell, Claimed, Clear, Finding, Rule, Severity
from tb_gpudiag.rules.savings import PlannedFix, plan_fixes, trusted_replay, with_replayed_saving
from tb_gpudiag.rules.shared.memory_room import share_of_memory
from tb_gpudiag.wording.format import one_line

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
    """What all rules answered, by id but for findings.

    Those that give back most come first, and hints (INFO) behind the others. Time and memory are compared by
    the share of what the job has: of the step window, what the fix gives back; of the device's memory, what
    it gives back, or what grows until the horizon (see memory_room.py). A leak that ends the job by then has
    taken all of it, so it comes before anything that only makes the job slow.
    """

    findings: list[Found]
    clear: list[tuple[Rule, Clear]]
    unchecked: list[tuple[Rule, CannotTell]]
    plan: list[PlannedFix] = field(default_factory=list)  # of findings, by their place in the list


def run_rules(facts: Facts, rules: Sequence[Rule] = RULES) -> Outcome:
    """Every rule that is about files of this kind, once. Never raises for what a rule does."""
    found: list[Found] = []
    clear: list[tuple[Rule, Clear]] = []
    unchecked: list[tuple[Rule, CannotTell]] = []
    claimed: dict[int, Intervals] = {}
    window_ns = facts.window.duration_ns
    for rule in rules:
        if facts.trace.kind not in rule.about:
            continue
        answer = _ask(rule, facts, claimed)
        if isinstance(answer, Clear):
            clear.append((rule, answer))
        elif isinstance(answer, CannotTell):
            unchecked.append((rule, answer))
        else:
            for finding in answer if isinstance(answer, list) else [answer]:
                found.append(Found(rule, finding, rule.severity_of(finding, window_ns)))
                claimed = _with(claimed, finding.claims)
    found = _with_savings(facts, found)
    found.sort(key=lambda f: _rank(facts, f))
    return Outcome(found, sorted(clear, key=_id), sorted(unchecked, key=_id), _plan(facts, found))


def _rank(facts: Facts, found: Found) -> tuple[bool, float, int, int, str]:
    finding = found.finding
    hint = found.severity == Severity.INFO
    return hint, -_share(facts, finding), -finding.cost_ns, -found.severity, found.rule.id


def _share(facts: Facts, finding: Finding) -> float:
    """What a fix gives back, of what the job has."""
    of_time = _gives_back(finding) / max(1, facts.window.duration_ns)
    if not (finding.cost_bytes or finding.cost_bytes_per_step):
        return of_time
    growth = finding.cost_bytes_per_step
    return max(of_time, share_of_memory(facts, finding.memory_device, finding.cost_bytes, growth))


def _id(answer: tuple[Rule, object]) -> str:
    return answer[0].id


def _ask(rule: Rule, facts: Facts, claimed: Claimed) -> Answer:
    try:
        answer = rule.check(facts, claimed) or Clear("nothing found")
        _hold_claims_apart(answer, claimed)
        return answer
    except Exception as error:  # a rule's bug must not cost the user the other findings
        log.exception("rule %s (%s) crashed", rule.id, rule.name)
        return CannotTell(f"could not check: {type(error).__name__}: {one_line(str(error), 200)}")


def _with_savings(facts: Facts, found: list[Found]) -> list[Found]:
    """Replayed savings for what can be replayed; the trace is replayed only where there is something to
    save."""
    if all(f.finding.removable is None for f in found):
        return found
    replay = trusted_replay(facts)
    if replay is None:
        return found
    return [replace(f, finding=with_replayed_saving(replay, f.finding)) for f in found]


def _plan(facts: Facts, found: list[Found]) -> list[PlannedFix]:
    if all(f.finding.removable is None for f in found):
        return []
    replay = trusted_replay(facts)
    return plan_fixes(replay, [f.finding for f in found]) if replay is not None else []


def _gives_back(finding: Finding) -> int:
    return finding.saving.high_ns if finding.saving else finding.cost_ns


def _hold_claims_apart(answer: Answer, claimed: Claimed) -> None:
    """Raises ValueError where a nanosecond would be claimed twice: costs could not be added up."""
    findings = answer if isinstance(answer, list) else [answer] if isinstance(answer, Finding) else []
    for finding in findings:
        for device, claim in finding.claims.items():
            if intersect(claim, claimed.get(device, EMPTY)).total:
                raise ValueError("claims what another finding is made of already")
        claimed = _with(claimed, finding.claims)


def _with(claimed: Claimed, claims: Claimed) -> dict[int, Intervals]:
    both = dict(claimed)
    for device, claim in claims.items():
        before = both.get(device, EMPTY)
        both[device] = union(np.r_[before.start, claim.start], np.r_[before.end, claim.end])
    return both
