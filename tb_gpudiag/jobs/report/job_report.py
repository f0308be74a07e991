"""Build the JobReports of digests: run the rules on jobs, and put facts and findings into messages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.members import find_sets, slim
from tb_gpudiag.jobs.replay.job_replay import EVEN_WORK, JobChange
from tb_gpudiag.jobs.report.job_messages import (
    collectives_message,
    job_tables,
    pipeline_message,
    rank_messages,
    step_messages,
)
from tb_gpudiag.jobs.report.job_view import JobReports
from tb_gpudiag.jobs.report.rank_timeline import rank_timeline
from tb_gpudiag.jobs.rules.job_registry import ABOUT_LATE_RANKS, JOB_RULES, JobRule
from tb_gpudiag.jobs.rules.job_verdict import find_job_verdict
from tb_gpudiag.jobs.rules.rank_findings import (
    WAIT_LESS,
    SharedFinding,
    finding_of_late,
    shared_findings,
    shared_message,
)
from tb_gpudiag.jobs.rules.uneven_ranks import LEAST_SHARE, Uneven, find_uneven, slowdown_shown
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.finding_messages import (
    Whole,
    clear_messages,
    finding_message,
    unchecked_messages,
)
from tb_gpudiag.report.building.units import message_of, us
from tb_gpudiag.report.wire import GENERATOR
from tb_gpudiag.rules.answer import CannotTell, Clear, Finding, RuleAnswer, Saving, Severity
from tb_gpudiag.rules.given_back import AS_IT_IS, given_back
from tb_gpudiag.rules.outcome import Outcome, RuleFinding, crashed
from tb_gpudiag.rules.rule import AnyRule
from tb_gpudiag.rules.savings import Removes, saving_of
from tb_gpudiag.rules.shared.recording_advice import for_recorders
from tb_gpudiag.wording.format import one_line

SCHEMA_VERSION = 1
MISSING_LIMIT = 1_000
NOTES_LIMIT = 50
SENTENCE_LIMIT = 1_000


def build_jobs(digests: Iterable[Digest], errors: Sequence[GpudiagError] = ()) -> JobReports:
    """Build a JobReport of each set of two ranks or more. errors: ranks that could not be read."""
    found = find_sets(slim(digest) for digest in digests)
    reports = [build_job_report(JobFacts(one), found.notes, errors) for one in found.sets]
    return JobReports(reports, [one_line(note) for note in found.notes[:NOTES_LIMIT]])


def build_job_report(
    facts: JobFacts, notes: Sequence[str] = (), errors: Sequence[GpudiagError] = ()
) -> pb.JobReport:
    """Build the JobReport of one set. notes: on files that are in no set."""
    outcome = run_job_rules(facts)
    late_are_told = any(one.rule.topic in ABOUT_LATE_RANKS for one in outcome.findings)
    shared = shared_findings(facts, late_are_told=late_are_told)
    verdict = find_job_verdict(facts, outcome.findings, shared)
    said = one_line(verdict.sentence, SENTENCE_LIMIT)
    found = facts.set
    residual = facts.clocks.residual_ns
    step_ns = float(np.median([one.step_time.median for one in found.members]))
    whole = Whole(facts.job_ns, step_ns, facts.unprofiled_share)
    return pb.JobReport(
        schema_version=SCHEMA_VERSION,
        generator=GENERATOR,
        id=job_id(found.members),
        run=one_line(found.run),
        span=_span(found.members),
        world_size=found.world_size,
        parallelism=" + ".join(facts.parallelism),
        ranks=rank_messages(facts),
        missing_ranks=found.missing[:MISSING_LIMIT],
        missing=len(found.missing),
        clocks=pb.Clocks(
            basis=facts.clocks.basis, residual_us=us(residual) if np.isfinite(residual) else 0.0
        ),
        collectives=collectives_message(facts),
        verdict=pb.Verdict(limiter=verdict.limiter, sentence=said, headline=one_line(verdict.headline)),
        findings=_findings(facts, outcome, shared, whole),
        unchecked=unchecked_messages(outcome),
        clear=clear_messages(outcome),
        notes=[one_line(note) for note in [*found.notes, *notes][:NOTES_LIMIT]],
        problems=[message_of(pb.Problem, error) for error in errors[:NOTES_LIMIT]],
        steps=step_messages(facts),
        slowdown=_slowdown(facts),
        timeline=rank_timeline(facts),
        tables=job_tables(facts),
        pipeline=pipeline_message(facts),
        step_time=pb.StepTime(
            median_us=us(step_ns), mean_us=us(step_ns), unprofiled_us=us(step_ns * facts.unprofiled_share)
        ),
    )


def _findings(
    facts: JobFacts, outcome: Outcome, shared: Sequence[SharedFinding], whole: Whole
) -> list[pb.Finding]:
    """Return the job's findings and those that its ranks share, in the order of `run_job_rules`."""
    leads = {one.rule.id for one in outcome.findings if one.finding.leads}
    found = [finding_message(one, whole) for one in outcome.findings]
    found += [shared_message(one, facts, whole) for one in shared]
    return sorted(found, key=lambda one: _order(one.severity, one.rule in leads, one.cost_us, one.rule))


def _order(severity: int, leads: bool, cost: float, rule: str) -> tuple[bool, bool, float, str]:
    """Mismatched collectives lead: the job may hang or be wrong, and what does not fit is not compared."""
    return severity == Severity.INFO, not leads, -cost, rule


def run_job_rules(facts: JobFacts, rules: Sequence[JobRule] = JOB_RULES) -> Outcome:
    """Run each rule once. Findings are ordered by cost, after mismatched collectives; hints (INFO) last."""
    found: list[RuleFinding] = []
    clear: list[tuple[AnyRule, Clear]] = []
    unchecked: list[tuple[AnyRule, CannotTell]] = []
    for rule in (rule for rule in rules if rule.about == facts.set.kind):
        answer = _ask(rule, facts)
        for one in answer if isinstance(answer, list) else [answer]:
            if isinstance(one, Finding):
                promised = _bounded(_with_replayed_saving(facts, rule, one), facts, rule)
                found.append(RuleFinding(rule, promised, rule.severity_of(promised, facts.job_ns)))
            elif isinstance(one, Clear):
                clear.append((rule, one))
            else:
                unchecked.append((rule, one))
    found.sort(key=lambda one: _order(one.severity, one.finding.leads, one.finding.cost_ns, one.rule.id))
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
    as their peers do, or if all ranks shared the uneven work. Ranks that share cores do not only wait."""
    if rule.topic not in ABOUT_LATE_RANKS or finding.saving is None or not facts.on_gpu:
        return finding
    uneven = find_uneven(facts)
    if not uneven.found or uneven.once:  # the replay begins after the first step, which may be that one
        return finding
    if rule.topic == "uneven work":
        saving = _saved_by_even_work(facts, uneven)
        return finding if saving is None else replace(finding, saving=saving)
    members = frozenset(uneven.members.tolist())
    saved_ns = facts.saved_ns(JobChange(parts=None, members=members))
    if saved_ns is None:
        return finding
    if saved_ns < LEAST_SHARE * facts.job_ns:
        # Stages of a pipeline without replicas have no peers that run the same program, so nothing changes.
        shown = facts.replay is not None and facts.replay.have_peers(members)
        return _hardly_saving(finding, saved_ns) if shown else finding
    return replace(finding, saving=Saving(saved_ns, saved_ns, "replayed"))


def _bounded(finding: Finding, facts: JobFacts, rule: JobRule) -> Finding:
    """Return the finding with what comes back of what it costs, or of what a replay shows."""
    saving, window_ns = finding.saving, max(1, facts.job_ns)
    if saving is None:
        return finding
    timed, step = saving.basis == "estimate" and not facts.on_gpu, max(0.01, facts.unprofiled_share)
    beyond = WAIT_LESS if saving.basis == "replayed" else saving.beyond
    cost, high = finding.cost_ns / window_ns or 1.0, saving.high_ns / window_ns
    most = min(1.0, high if beyond else min(high, cost))
    low = min(saving.low_ns / window_ns, most) or most * timed
    removes = Removes((low, most), cost / step, beyond=beyond)
    back = given_back("ranks", rule.kind_of_fix) if timed else AS_IT_IS
    return replace(finding, saving=saving_of(removes, back, window_ns, saving.basis))


def _saved_by_even_work(facts: JobFacts, uneven: Uneven) -> Saving | None:
    """Return what a job saves whose ranks share the uneven work, or drop what only one of them does; None if
    no replay can be trusted, or it shows that neither saves anything."""
    members = frozenset(uneven.members.tolist())
    if uneven.pattern == "varying":
        found = facts.saved_range_ns(EVEN_WORK)
    else:
        even_ns, dropped_ns = (facts.saved_ns(one) for one in (EVEN_WORK, JobChange(None, members)))
        own = finding_of_late(facts, uneven).rule != ""
        found = None
        if even_ns is not None and dropped_ns is not None:
            # Work that is another program cannot be shared: the replay shares what all ranks run.
            may_drop = own or even_ns < LEAST_SHARE * facts.job_ns
            found = even_ns, max(even_ns, dropped_ns) if may_drop else even_ns
    return None if found is None or found[1] < LEAST_SHARE * facts.job_ns else Saving(*found, "replayed")


def _hardly_saving(finding: Finding, saved_ns: int) -> Finding:
    """The finding if a replay shows that other ranks are as late: a hint, however long the others wait."""
    return replace(
        finding,
        summary=f"{finding.summary} Replaying the job without this delay saves hardly anything, because "
        "other ranks are late, too.",
        saving=Saving(0, saved_ns, "replayed"),
        severity=Severity.INFO,
    )


def _slowdown(facts: JobFacts) -> pb.Slowdown | None:
    found = slowdown_shown(facts)
    if found is None:
        return None
    return message_of(
        pb.Slowdown,
        found,
        by_rank={str(facts.set.ranks[member]): s for member, s in found.by_member.items()},
        by_kind=found.by_part,
        basis="replayed",
        error_share=found.error,
    )


def job_id(members: Sequence[Digest]) -> str:
    """Return an id that is the same for the same recordings."""
    ids = "\n".join(sorted(member.about.id for member in members))
    return hashlib.blake2b(ids.encode(), digest_size=16).hexdigest()


def _span(members: Sequence[Digest]) -> str:
    spans = {member.about.span for member in members}
    return one_line(spans.pop()) if len(spans) == 1 else ""
