"""What the ranks' own reports find: the same on most ranks, or only on those that the others wait for."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.replay.job_replay import JobChange
from tb_gpudiag.jobs.rules.job_words import culprits_text, most_places
from tb_gpudiag.jobs.rules.uneven_ranks import Uneven
from tb_gpudiag.jobs.step_parts import ids_of
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.finding_messages import Whole, put_saving
from tb_gpudiag.rules.answer import Fix, Place
from tb_gpudiag.rules.rule import family_of
from tb_gpudiag.rules.savings import MORE_THAN_COST
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.frames import LineKind
from tb_gpudiag.wording.format import one_line

# What fewer ranks have is the job's only if they hold up the others, and no rule tells of them.
MOST_RANKS = levels.HALF

# Ranks hold up the others if more than half of the waiting is for them, and it takes this share of the time.
# On healthy real jobs ranks wait for 25% and more, too, but no rank's own report has a finding then.
HELD_UP = levels.LARGE

# A finding of a late rank's own report explains its lateness if it costs this much of it.
EXPLAINED = levels.HALF

# What a rank spends on others shows in each rank's report; rules on jobs tell who is waited for. Steps vary
# on all ranks if one of them is late now and then. And what is wrong with a recording slows no job.
_OF_THE_JOB: Final = {"ranks", "recording"}

# A hint that most ranks have is worth a line of the job's report if its fix would be noticed.
LEAST_SHARE_OF_HINT = levels.SIZEABLE

WAIT_LESS: Final = "the ranks then wait less for one another, as a replay of the job shows"

TITLE_LIMIT: Final = 300
SUMMARY_LIMIT: Final = 2_000


@dataclass(frozen=True, eq=False)
class SharedFinding:
    """A finding of most ranks' own reports, or of those that the others wait for: that of the rank with the
    middle cost, and the members that have it. low_us, high_us: what a fix on all of them saves the job, at
    least and at most; 0 without a saving."""

    finding: pb.Finding
    members: Int64
    low_us: float
    high_us: float


def shared_findings(facts: JobFacts, *, late_are_told: bool) -> list[SharedFinding]:
    """Return what most ranks, or those that the others wait for, lose by themselves: most time first, and
    hints last. late_are_told: a rule tells who is late, and why."""
    members = facts.set.members
    least_us = LEAST_SHARE_OF_HINT * facts.job_ns / 1e3
    by_rule: dict[str, dict[int, pb.Finding]] = defaultdict(dict)
    for index, member in enumerate(members):
        own = {finding.rule: finding for finding in reversed(member.findings) if _is_own(finding)}
        for rule, finding in own.items():
            if finding.severity > pb.Finding.INFO or finding.cost_us >= least_us:
                by_rule[rule][index] = finding
    most = max(1, int(MOST_RANKS * len(members)))
    found = [
        _shared(facts, some)
        for some in by_rule.values()
        if len(some) > most or (not late_are_told and _hold_up(facts, some))
    ]
    return sorted(
        found,
        key=lambda one: (one.finding.severity == pb.Finding.INFO, -one.finding.cost_us, one.finding.rule),
    )


def _hold_up(facts: JobFacts, found: dict[int, pb.Finding]) -> bool:
    """Whether the other ranks mostly wait for those with these findings, whose cost explains it. found: by
    member."""
    waits = facts.waits
    loud = [index for index, finding in found.items() if finding.severity > pb.Finding.INFO]
    if not loud or not len(waits):
        return False
    for_each = waits.waiting_for_each(len(facts.set.members))
    for_these = for_each[loud].sum()
    cost_ns = sum(found[index].cost_us for index in loud) * 1e3
    return bool(
        for_these > MOST_RANKS * for_each.sum()
        and for_these >= HELD_UP * facts.job_ns
        and cost_ns >= EXPLAINED * for_these
    )


def _shared(facts: JobFacts, found: dict[int, pb.Finding]) -> SharedFinding:
    """Take the rank in the middle for all. found: by member."""
    findings = list(found.values())
    middle = sorted(findings, key=lambda one: one.cost_us)[(len(findings) - 1) // 2]
    # Ranks that do it in turn wait for one another, and that ends, too.
    replayed_us = (facts.saved_ns(JobChange(parts=None)) or 0) * facts.unprofiled_share / 1e3
    in_turn_us = min(sum(one.saving.high_us for one in findings), replayed_us)
    high_us = max(middle.saving.high_us, in_turn_us)
    low_us = min(high_us, *(one.saving.low_us for one in findings))
    return SharedFinding(middle, np.array(list(found), np.int64), low_us, high_us)


def _who(facts: JobFacts, members: Int64) -> str:
    ranks, of = len(members), len(facts.set.members)
    if ranks <= max(1, MOST_RANKS * of):
        return f"{culprits_text(facts, members)}, which the others wait for"
    if ranks < of:
        return f"{ranks:,} of {of:,} ranks"
    return "both ranks" if of == 2 else f"all {of:,} ranks"


def shared_message(shared: SharedFinding, facts: JobFacts, whole: Whole) -> pb.Finding:
    """The finding as one of the job."""
    message = pb.Finding()
    message.CopyFrom(shared.finding)
    message.title = one_line(f"On {_who(facts, shared.members)}: {message.title}", TITLE_LIMIT)
    message.summary = one_line(f"{message.summary} Figures are of the rank in the middle.", SUMMARY_LIMIT)
    del message.ranges[:]  # of one rank's time
    if message.HasField("saving"):
        likely_us = min(max(message.saving.likely_us, shared.low_us), shared.high_us)
        recorded_ns = np.array([shared.low_us, likely_us, shared.high_us]) * 1e3 / whole.unprofiled_share
        put_saving(message.saving, tuple(recorded_ns.tolist()), whole)
        if shared.high_us > MORE_THAN_COST * message.cost_us:
            message.saving.beyond = message.saving.beyond or WAIT_LESS
    return message


NO_FINDING: Final = pb.Finding()


def finding_of_late(facts: JobFacts, uneven: Uneven) -> pb.Finding:
    """Return what the report of the first uneven rank finds, and the reports of most others do not, if it is
    about the part of the steps that takes longer, and explains how much. A mode does."""
    members, late, first = facts.set.members, uneven.members, int(uneven.members[0])
    if facts.in_another_mode[first]:
        return next(one for one in members[first].findings if one.rule in ids_of("mode"))
    others = [{one.rule for one in members[i].findings} for i in range(len(members)) if i not in late]
    own = [
        one
        for one in members[first].findings
        if one.cost_us * 1e3 >= EXPLAINED * (uneven.part_ns // len(late))
        and _is_own(one)
        and (family_of(one.rule) == "kernels") is (uneven.part == "computing")
        and sum(one.rule in rules for rules in others) <= MOST_RANKS * len(others)
    ]
    return max(own, key=lambda one: one.cost_us, default=NO_FINDING)


def is_shared(facts: JobFacts, lost_ns: int) -> bool:
    """Whether a problem that most ranks have explains what they lose in turn: what its longest stretches cost
    all of them. Many short ones, as of small operators, make no rank late now and then."""
    for one in shared_findings(facts, late_are_told=True):
        long_us = sum(each.end_us - each.start_us for each in one.finding.ranges)
        cost_ns = min(one.finding.cost_us, long_us) * 1e3 * len(one.members)
        if one.finding.severity > pb.Finding.INFO and cost_ns >= EXPLAINED * lost_ns:
            return True
    return False


def own_report_text(finding: pb.Finding) -> str:
    """Return what the late rank's own report says, inside a summary; "" if nothing explains it."""
    said = f" Its own report says: {finding.title} ({finding.rule})."
    return one_line(said, TITLE_LIMIT) if finding.rule else ""


def places_of(finding: pb.Finding) -> list[Place]:
    """Return the places of a rank's own finding."""
    return [
        Place(
            file=place.file,
            line=place.line,
            function=place.function,
            operator=place.operator,
            time_ns=int(place.us * 1e3),
            line_kind=LineKind(place.line_kind),
            module=place.module,
            range=place.range,
        )
        for place in finding.places
    ]


def late_places(facts: JobFacts, members: Int64, part: str) -> list[Place]:
    """Return where the host of these ranks is, more than that of the others. Where GPUs compute longer, the
    host says nothing."""
    operations = facts.operations
    if part == "copying" or (part == "computing" and facts.on_gpu):
        return []
    index = operations.part_names.index(part)
    spent = (operations.parts[:, index] > 0) & (operations.place_ns > 0)
    own = spent & np.isin(operations.member, members)
    places = len(operations.place.texts)
    ours = np.bincount(operations.place.code[own], operations.place_ns[own], places) / len(members)
    rest = spent & ~own
    others = max(1, len(facts.set.members) - len(members))
    theirs = np.bincount(operations.place.code[rest], operations.place_ns[rest], places) / others
    more = (ours - theirs).astype(np.int64)
    return most_places(operations.place.texts, more)


def fix_of(finding: pb.Finding, otherwise: Fix) -> Fix:
    """Return the fix of a rank's own finding, if it has one."""
    fix = finding.fix
    return Fix(fix.text, fix.code, fix.url) if fix.text else otherwise


def _is_own(finding: pb.Finding) -> bool:
    return family_of(finding.rule) not in _OF_THE_JOB and finding.rule not in ids_of("steps")
