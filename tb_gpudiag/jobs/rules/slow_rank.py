"""GD602: a rank that the others wait for, because it takes longer for the same work."""

from __future__ import annotations

import math

import numpy as np

from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.rules.job_words import (
    AGREEING,
    RECORD_STEPS,
    capitalized,
    culprits_text,
    part_text,
    ranks_evidence,
)
from tb_gpudiag.jobs.rules.rank_findings import (
    finding_of_late,
    fix_of,
    is_shared,
    late_places,
    own_report_text,
    places_of,
)
from tb_gpudiag.jobs.rules.uneven_ranks import LEAST_STEPS, SLOWER, Uneven, find_uneven
from tb_gpudiag.jobs.step_parts import ids_of
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, Fix, RuleAnswer, Saving, Severity
from tb_gpudiag.rules.rule import page_fixes
from tb_gpudiag.wording.format import count, figures, share, time_ns
from tb_gpudiag.wording.quantity import duration, number, ratio

FIXES = page_fixes(__name__)


def check(facts: JobFacts) -> RuleAnswer:
    """Find ranks whose own time per step is longer than their peers', for another reason than more work."""
    uneven = find_uneven(facts)
    window_ns = facts.job_ns
    if uneven.pattern == "too few steps":
        return CannotTell(
            f"only {count(uneven.of_steps, 'step')} was recorded on all ranks. In it the slowest rank takes "
            f"{time_ns(uneven.high_ns)} longer than its peers, which may be chance",
            RECORD_STEPS,
        )
    if uneven.pattern == "even" or (uneven.pattern == "varying" and uneven.part == "computing"):
        return Clear(
            f"the slowest ranks are {share(uneven.high_ns, window_ns)} of the step window above their peers "
            f"over {count(uneven.of_steps, 'step')}"
        )
    if uneven.work == "more":
        return Clear(f"{culprits_text(facts, uneven.members)} compute more, not slower: see GD603")
    return _in_turn(facts, uneven) if uneven.pattern == "varying" else _finding(facts, uneven, window_ns)


def _finding(facts: JobFacts, uneven: Uneven, window_ns: int) -> Finding:
    who, members = culprits_text(facts, uneven.members), uneven.members
    s, _, its, it = AGREEING[len(members) > 1]
    always = uneven.steps == uneven.of_steps
    longer = time_ns(uneven.high_ns / (uneven.of_steps if uneven.pattern == "persistent" else uneven.steps))
    when = "in every step" if always else f"in {uneven.steps} of {count(uneven.of_steps, 'step')}"
    said, device = (finding_of_late(facts, uneven), "GPU" if facts.on_gpu else "CPU")
    # A problem in more than one step that most others do not have is no chance, however often it happens.
    often = uneven.steps >= LEAST_STEPS and not uneven.lacks_cores
    chance = uneven.may_be_chance and not (often and said.severity > pb.Finding.INFO)
    doubt = "In so few steps it may be chance: record more."
    if not uneven.once:
        doubt = "Another process may have had its cores: record again."
    same = Evidence("Same work takes", ratio(uneven.slower, "as long"))
    judged = ~facts.starts.first
    last = int(np.isin(facts.waits.last_member[judged], members).sum())
    return Finding(
        title=f"{capitalized(who)} take{s} {longer} longer than {its} peers {when}, and all ranks wait",
        summary=f"{_why(uneven, its, device)}{own_report_text(said)} The other ranks wait for "
        f"{it} in collectives.{f' {doubt}' if chance else ''}",
        fix=_fix(uneven, device, said),
        cost_ns=uneven.high_ns,
        saving=_saving(uneven, chance),
        evidence=[
            ranks_evidence(facts, members),
            Evidence.of_window("Lost per rank", uneven.high_ns, window_ns),
            Evidence("Slow in", number(uneven.steps, "step", suffix=f"of {uneven.of_steps}")),
            Evidence(f"More {part_text(uneven.part)}", duration(uneven.part_ns / len(members))),
            *([same] if uneven.part == "computing" and not math.isnan(uneven.slower) else []),
            Evidence("Last to arrive in", number(last, "collective", suffix=f"of {int(judged.sum()):,}")),
        ],
        places=late_places(facts, members, uneven.part) or places_of(said),
        severity=Severity.INFO.when(chance),
    )


def _in_turn(facts: JobFacts, uneven: Uneven) -> Finding:
    """Return the finding that another rank is late in each step, and not because of its computing."""
    members, window_ns = uneven.members, facts.job_ns
    chance = uneven.may_be_chance and not (uneven.steps >= LEAST_STEPS and is_shared(facts, uneven.high_ns))
    return Finding(
        title=f"A different rank is late each time: {time_ns(uneven.high_ns / uneven.of_steps)} per step "
        "lost",
        summary=f"In {uneven.steps} of {count(uneven.of_steps, 'step')} one rank is late because of "
        f"{part_text(uneven.part)}, and all others wait for it. These were {culprits_text(facts, members)}.",
        fix=FIXES["together"],
        cost_ns=uneven.high_ns,
        saving=_saving(uneven, chance),
        evidence=[
            ranks_evidence(facts, members),
            Evidence.of_window("Lost per rank", uneven.high_ns, window_ns),
            Evidence("A rank is late in", number(uneven.steps, "step"), (f"of {uneven.of_steps}",)),
            Evidence(f"More {part_text(uneven.part)}", duration(uneven.part_ns)),
        ],
        places=late_places(facts, members, uneven.part),
        severity=Severity.INFO.when(chance),
    )


def _saving(uneven: Uneven, chance: bool) -> Saving:
    """Return what a fix saves. If it was chance, there is nothing to fix."""
    return Saving(0, uneven.high_ns) if chance else Saving(uneven.low_ns, uneven.high_ns, "estimate")


def _why(uneven: Uneven, its: str, device: str) -> str:
    whose = capitalized(its)
    kernels, spends = ("kernels", "GPU spends") if device == "GPU" else ("operators", "host spends")
    if uneven.work == "slower":
        return (
            f"{whose} {kernels} take {figures(uneven.slower)} times as long as the same {kernels} with the "
            f"same shapes on the other ranks: the {device} is slower."
        )
    if uneven.part == "computing" and math.isfinite(uneven.slower):
        times = "" if uneven.slower < SLOWER else f"{figures(uneven.slower)} times "
        return f"A few of {its} {kernels} take the time: most take {times}as long as on the other ranks."
    if uneven.part == "computing":
        return (
            f"{whose} {device} computes longer. The traces do not show whether it computes more: shapes were "
            "not recorded."
        )
    return f"{whose} {spends} the time on {part_text(uneven.part)}."


def _fix(uneven: Uneven, device: str, said: pb.Finding) -> Fix:
    own = fix_of(said, _READ_ITS_REPORT)
    if said.rule in ids_of("mode") or (device, uneven.part) == ("CPU", "computing"):
        return own
    return FIXES.get(uneven.part, own)


_READ_ITS_REPORT = Fix(
    "See whether it gets more or longer inputs (record_shapes=True), and compare its host with the others': "
    "cores, other processes, disk. Its own report says where the time goes.",
    "gpudiag diagnose RANK_FILE",
    "https://docs.pytorch.org/docs/stable/elastic/run.html",
)
