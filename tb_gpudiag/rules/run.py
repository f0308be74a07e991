"""Runs the rules. A rule that crashes becomes "could not check", never a dead page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tb_gpudiag.facts.core.intervals import EMPTY, intersect
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import CannotTell, Clear, Finding, RuleAnswer, Severity, with_findings
from tb_gpudiag.rules.doubts import ABOUT_TIME, corrected, doubts_about
from tb_gpudiag.rules.outcome import Outcome, RuleFinding, crashed
from tb_gpudiag.rules.rule import AnyRule, Claimed, Rule, with_claims
from tb_gpudiag.rules.savings import PlannedFix, Predicted, plan_fixes, predicted_of, with_saving
from tb_gpudiag.rules.shared.out_of_memory import share_of_memory
from tb_gpudiag.rules.shared.recording_advice import for_recorders, unseen_kernels
from tb_gpudiag.rules.shared.server_recording import for_server
from tb_gpudiag.vocabulary import levels

# What a fix gives back decides, not what the time is spent on: healthy jobs mostly stay below this. What is
# likely to give back less is a hint.
LEAST_SAVED = levels.NOTICEABLE

# A finding with such a share of the time of its own is better advice than the operators that take most of it.
COSTLY = levels.SIZEABLE

UNSURE = levels.HALF
"""The share of its saving that a finding counts for if it is not sure (Finding.sure)."""

# Compiling the model leaves an argument of the user's own call nothing to save. Experts who read recordings
# name the argument first, such as that of `zero_grad`, where compiling saves four times as much.
GENERAL = levels.LARGE
"""The share of its saving that a general fix counts for, if one that names a call saves nothing after it."""


def run_rules(facts: Facts, rules: Sequence[Rule]) -> Outcome:
    """Run each rule that applies to this kind of file, once. Never raises because of a rule."""
    asked = _ask_all(rules, facts)
    window_ns = facts.window.duration_ns
    found = [
        RuleFinding(rule, finding, _severity(rule, finding, facts))
        for rule, answer in asked
        for finding in _findings(answer)
    ]
    by_id = sorted(asked, key=lambda one: one[0].id)
    clear = [(rule, answer) for rule, answer in by_id if isinstance(answer, Clear)]
    unchecked = [(rule, answer) for rule, answer in by_id if isinstance(answer, CannotTell)]
    predicted = predicted_of(facts) if any(f.finding.removable for f in found) else None
    found = [_seen(replace(f, finding=_with_saving(f, facts, predicted)), window_ns) for f in found]
    better = any(
        f.severity > Severity.INFO
        or (f.finding.cost_ns >= COSTLY * window_ns and f.rule.family in ABOUT_TIME)
        for f in found
    )
    found, plan = _in_order(found, facts, predicted, better=better)
    adds_ns = {one.finding: one.saving_ns for one in plan}
    named_ns = [0 if one.finding.fix.general else one.finding.promise.likely_ns for one in found]
    lost_ns = [likely_ns - adds_ns.get(i, 0) for i, likely_ns in enumerate(named_ns)]
    if max(lost_ns, default=0) >= LEAST_SAVED * window_ns:
        found, plan = _in_order(found, facts, predicted, better=better, general=GENERAL)
    return Outcome(found, clear, unchecked, plan)


def _in_order(
    found: list[RuleFinding], facts: Facts, predicted: Predicted | None, *, better: bool, general: float = 1.0
) -> tuple[list[RuleFinding], list[PlannedFix]]:
    """Sort the findings, and plan their fixes in this order. general: what a general fix counts for."""
    found = sorted(found, key=lambda one: (_place(one, better=better), _rank(one, facts, general)))
    return found, plan_fixes(predicted, [one.finding for one in found]) if predicted is not None else []


def _ask_all(rules: Sequence[Rule], facts: Facts) -> list[tuple[AnyRule, RuleAnswer]]:
    """Ask each rule in order. The rules after it do not see the time that a finding claims."""
    claimed: Claimed = {}
    asked: list[tuple[AnyRule, RuleAnswer]] = []
    for rule in rules:
        if facts.trace.kind not in rule.about:
            continue
        answer = _ask(rule, facts, claimed)
        for finding in _findings(answer):
            claimed = with_claims(claimed, finding.claims)
        asked.append((rule, answer))
    return asked


def _findings(answer: RuleAnswer) -> list[Finding]:
    if isinstance(answer, list):
        return answer
    return [answer] if isinstance(answer, Finding) else []


def _severity(rule: AnyRule, finding: Finding, facts: Facts) -> Severity:
    """The rule's own, unless what makes the recording untrustworthy allows less."""
    own = rule.severity_of(finding, facts.window.duration_ns)
    return min(own, *(doubt.at_most for doubt in doubts_about(rule, facts)), Severity.ERROR)


def _with_saving(found: RuleFinding, facts: Facts, predicted: Predicted | None) -> Finding:
    doubted = next(filter(None, (doubt.finding for doubt in doubts_about(found.rule, facts))), None)
    if doubted is not None:
        return doubted(found.finding, facts)
    return with_saving(found.finding, facts, predicted, found.rule.kind_of_fix)


def _seen(found: RuleFinding, window_ns: int) -> RuleFinding:
    """What no fix saves much of is a hint, whatever it costs: the job waits for something else."""
    saving = found.finding.saving
    saved_ns = saving.likely_ns or saving.high_ns if saving else window_ns
    unseen = found.finding.cost_ns > 0 and saved_ns < LEAST_SAVED * window_ns
    return replace(found, severity=Severity.INFO) if unseen else found


def _place(found: RuleFinding, *, better: bool) -> int:
    """What ends the job comes first, then what decides whether the others can be trusted. What the job
    computes is said first only if there is no better advice. better: a finding is more than a hint, or costs
    much of the time."""
    if found.severity == Severity.ERROR and found.rule.family == "memory":
        return 0
    says_what_computes = not found.finding.cost_ns and found.rule.family in ABOUT_TIME
    return 1 if found.finding.leads and not (says_what_computes and better) else 2


def _rank(found: RuleFinding, facts: Facts, general: float) -> tuple[int, float, int]:
    """Sort by severity, then by the middle of what a fix saves of the job's time, or by what it frees of its
    memory. What is not sure counts for less. What costs most comes first among equals, then what RULES have
    first: a cause before what it does to steps, and all before what was recorded."""
    finding, window_ns = found.finding, max(1, facts.window.duration_ns)
    counts = (1 if finding.sure else UNSURE) * (general if finding.fix.general else 1)
    saved = max(counts * finding.promise.middle_ns / window_ns, _held_share(finding, facts))
    return -found.severity, -saved, -finding.cost_ns


def _held_share(finding: Finding, facts: Facts) -> float:
    """The share of the device's memory that a fix frees; 0 for a finding about time."""
    held_bytes, growth = finding.cost_bytes, finding.cost_bytes_per_step if finding.sure else 0.0
    memory = facts.memory_of(finding.memory_device) if held_bytes or growth else None
    return share_of_memory(memory, held_bytes, growth) if memory is not None else 0.0


def _ask(rule: Rule, facts: Facts, claimed: Claimed) -> RuleAnswer:
    silent = filter(None, (doubt.silent for doubt in doubts_about(rule, facts)))
    if (nothing := next(silent, None)) is not None:
        return nothing(facts)
    try:
        answer = rule.check(facts, claimed) or Clear("nothing found")
        answer = with_findings(answer, lambda found: corrected(found, rule, facts))
        _refuse_double_claims(answer, claimed)
        if rule.family == "kernels" and isinstance(answer, Clear):
            answer = unseen_kernels(facts.whole_graphs, facts.window.duration_ns) or answer
        return for_server(for_recorders(answer, {facts.trace.metadata.recorder}), facts.job.server)
    except MemoryError:  # not a bug of this rule, and the next one would fail as well
        raise
    except Exception as error:  # a rule's bug must not cost the user the other findings
        return crashed(rule, error)


def _refuse_double_claims(answer: RuleAnswer, claimed: Claimed) -> None:
    """Raise ValueError if a nanosecond is claimed twice: then costs would not add up."""
    for finding in _findings(answer):
        for device, claim in finding.claims.items():
            if intersect(claim, claimed.get(device, EMPTY)).total:
                raise ValueError("claims time that another finding has claimed")
        claimed = with_claims(claimed, finding.claims)
