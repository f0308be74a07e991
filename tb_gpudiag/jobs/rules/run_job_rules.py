"""Runs the rules on jobs. A rule that crashes becomes "could not check"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.replay.job_replay import EVEN_WORK, JobChange
from tb_gpudiag.jobs.rules.job_registry import JOB_RULES, JobRule
from tb_gpudiag.jobs.rules.uneven_ranks import LEAST_SHARE, find_uneven
from tb_gpudiag.rules.rule import AnyRule, CannotTell, Clear, Finding, RuleAnswer, Saving, Severity
from tb_gpudiag.rules.run import Outcome, RuleFinding, crashed
from tb_gpudiag.rules.shared.recording_advice import for_recorders

_ABOUT_RANKS: Final = ("GD602", "GD603")


def run_job_rules(facts: JobFacts, rules: Sequence[JobRule] = JOB_RULES) -> Outcome:
    """Run each rule once. Findings are ordered by cost, hints (INFO) last."""
    found: list[RuleFinding] = []
    clear: list[tuple[AnyRule, Clear]] = []
    unchecked: list[tuple[AnyRule, CannotTell]] = []
    for rule in rules:
        answer = _ask(rule, facts)
        for one in answer if isinstance(answer, list) else [answer]:
            if isinstance(one, Finding):
                severity = rule.severity_of(one, facts.job_ns)
                found.append(RuleFinding(rule, _with_replayed_saving(facts, rule, one), severity))
            elif isinstance(one, Clear):
                clear.append((rule, one))
            else:
                unchecked.append((rule, one))
    found.sort(key=lambda one: (one.severity == Severity.INFO, -one.finding.cost_ns, one.rule.id))
    return Outcome(found, clear, unchecked)


def _ask(rule: JobRule, facts: JobFacts) -> RuleAnswer:
    try:
        return for_recorders(rule.check(facts), facts.recorders)
    except MemoryError:  # not a bug of this rule, and the next one would fail as well
        raise
    except Exception as error:  # a rule's bug must not cost the user the other findings
        return crashed(rule, error)


def _with_replayed_saving(facts: JobFacts, rule: JobRule, finding: Finding) -> Finding:
    """Return the finding with the saving of the whole job, where the replay can be trusted: if its ranks did
    as their peers do, or if all ranks shared the uneven work."""
    if rule.id not in _ABOUT_RANKS or finding.saving is None:
        return finding
    uneven = find_uneven(facts)
    if not uneven.found:
        return finding
    like_peers = JobChange(parts=None, members=frozenset(uneven.members.tolist()))
    saved_ns = facts.saved_ns(EVEN_WORK if rule.id == "GD603" else like_peers)
    # Stages of a pipeline without replicas have no peers that run the same program, so nothing changes.
    if saved_ns is None or saved_ns < LEAST_SHARE * facts.job_ns:
        return finding
    return replace(finding, saving=Saving(saved_ns, saved_ns, "replayed"))
