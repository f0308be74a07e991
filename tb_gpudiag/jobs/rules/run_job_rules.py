"""Runs the rules on jobs. A rule that crashes becomes "could not check"."""

from __future__ import annotations

from collections.abc import Sequence

from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.rules.job_registry import JOB_RULES
from tb_gpudiag.jobs.rules.job_rule import JobRule
from tb_gpudiag.jobs.rules.replayed_savings import with_replayed_saving
from tb_gpudiag.rules.rule import AnyRule, CannotTell, Clear, Finding, RuleAnswer, Severity
from tb_gpudiag.rules.run import Outcome, RuleFinding, crashed
from tb_gpudiag.rules.shared.recording_advice import for_recorders


def run_job_rules(facts: JobFacts, rules: Sequence[JobRule] = JOB_RULES) -> Outcome:
    """Run each rule once. Findings are ordered by cost, hints (INFO) last."""
    found: list[RuleFinding] = []
    clear: list[tuple[AnyRule, Clear]] = []
    unchecked: list[tuple[AnyRule, CannotTell]] = []
    for rule in rules:
        answer = _ask(rule, facts)
        for one in answer if isinstance(answer, list) else [answer]:
            if isinstance(one, Finding):
                found.append(RuleFinding(rule, one, rule.severity_of(one, facts.job_ns)))
            elif isinstance(one, Clear):
                clear.append((rule, one))
            else:
                unchecked.append((rule, one))
    found = [with_replayed_saving(facts, one) for one in found]
    found.sort(key=lambda one: (one.severity == Severity.INFO, -one.finding.cost_ns, one.rule.id))
    return Outcome(found, clear, unchecked)


def _ask(rule: JobRule, facts: JobFacts) -> RuleAnswer:
    try:
        return for_recorders(rule.check(facts), facts.recorders)
    except MemoryError:  # not a bug of this rule, and the next one would fail as well
        raise
    except Exception as error:  # a rule's bug must not cost the user the other findings
        return crashed(rule, error)
