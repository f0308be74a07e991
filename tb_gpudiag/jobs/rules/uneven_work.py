"""GD603: ranks have different amounts of work, so that all wait for the one with most."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import median
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.operations import COMPUTING
from tb_gpudiag.jobs.replay.job_replay import EVEN_WORK
from tb_gpudiag.jobs.rules.job_words import (
    AGREEING,
    RECORD_STEPS,
    capitalized,
    culprits_text,
    part_text,
    ranks_evidence,
)
from tb_gpudiag.jobs.rules.rank_findings import (
    NO_FINDING,
    finding_of_late,
    fix_of,
    late_places,
    own_report_text,
    places_of,
)
from tb_gpudiag.jobs.rules.uneven_ranks import (
    CERTAIN,
    LEAST_SHARE,
    LEAST_STEPS,
    OTHER_WORK,
    STAGE_SHARE,
    Uneven,
    find_uneven,
)
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, RuleAnswer, Saving, Severity
from tb_gpudiag.rules.rule import page_fixes
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.collective_kinds import EXPERT, PIPELINE
from tb_gpudiag.wording.format import count, ranks_text, share, time_ns
from tb_gpudiag.wording.quantity import duration, number, ratio

FIXES = page_fixes(__name__)

# One of the ranks is the slowest in any step. In healthy jobs it is up to 2% above its peers, and even work
# would save up to 2%. Uneven batches make it 9% and more.
LEAST_SPREAD = levels.NOTICEABLE


def check(facts: JobFacts) -> RuleAnswer:
    """Find ranks that compute more than their peers, and pipeline stages that compute more than others."""
    uneven = find_uneven(facts)
    window_ns = facts.job_ns
    if uneven.pattern == "too few steps":
        return CannotTell(f"only {count(uneven.of_steps, 'step')} was recorded on all ranks", RECORD_STEPS)
    if uneven.found and uneven.part == "computing" and (uneven.pattern == "varying" or uneven.work == "more"):
        # In a pipeline, other ranks may hide those that are slow now and then.
        saved_ns = facts.saved_ns(EVEN_WORK) if uneven.pattern == "varying" else None
        if saved_ns is not None and saved_ns < LEAST_SHARE * window_ns:
            return Clear(f"with even work, the replayed steps are {share(saved_ns, window_ns)} shorter")
        return _finding(facts, uneven, window_ns)
    if PIPELINE in facts.parallelism and (stages := _stages(facts, window_ns)) is not None:
        return stages
    # A router of experts is never quite even.
    may_take_turns = not uneven.found and EXPERT not in facts.parallelism
    if may_take_turns and (taking_turns := _in_turn(facts, window_ns)):
        return taking_turns
    if uneven.found:
        where = "with slower kernels" if uneven.work == "slower" else f"in {part_text(uneven.part)}"
        return Clear(f"time is lost {where} on {culprits_text(facts, uneven.members)}, not with more work")
    return Clear(
        f"the slowest ranks are {share(uneven.high_ns, window_ns)} of the step window above those with the "
        "same role"
    )


def _in_turn(facts: JobFacts, window_ns: int) -> Finding | None:
    """Return a finding if ranks take turns being slow, so that only a replay shows the cost: two ranks from
    step to step, or replicas of a pipeline from microbatch to microbatch."""
    steps = len(facts.own_time.steps)
    if not steps or not _takes_turns(facts):
        return None
    saved_ns, between = facts.saved_ns(EVEN_WORK), facts.saved_range_ns(EVEN_WORK)
    if saved_ns is None or between is None:
        return None
    # Ranks that share cores differ a little by chance. Other steps would show that.
    surely_ns, saving = between[0], Saving(0, between[1], "estimate")
    if facts.on_gpu:
        surely_ns, saving = saved_ns, Saving(*between, "replayed")
    if surely_ns < LEAST_SHARE * window_ns:
        return None
    batches = "microbatches" if PIPELINE in facts.parallelism else "batches"
    barriers, waits = "", facts.waits
    of_barriers = facts.operations.of_kinds({"barrier"})[waits.row]
    if 2 * waits.waiting_ns[of_barriers].sum() >= waits.waiting_ns.sum():
        barriers = " Most of the waiting is in barriers: without them, only the sums of the batches count."
    return Finding(
        title=f"{capitalized(batches)} are uneven: {time_ns(saved_ns / steps)} per step lost",
        summary="Ranks with the same role compute about equally long in all, but each in turn has the "
        f"longest of the {batches}, and the others wait.{barriers}",
        fix=FIXES["batches"],
        cost_ns=saved_ns,
        saving=saving,
        evidence=[
            Evidence.of_window(f"Shorter with even {batches}, replayed", saved_ns, window_ns),
            Evidence("Replayed", number(steps, "step")),
        ],
    )


def _takes_turns(facts: JobFacts) -> bool:
    """Whether ranks are slow in turn by more than chance. On a CPU, only other sizes of the same kernels tell
    more work from cores that are shared."""
    own = facts.own_time
    other = int(own.computing_other_ns.sum())
    if facts.on_gpu or other >= OTHER_WORK * max(1, other + int(own.computing_same_ns.sum())):
        longer = own.excess_ns / np.maximum(1, own.usual_ns)
        return float(np.median(longer.max(axis=0))) >= LEAST_SPREAD
    return own.differs_share >= OTHER_WORK and _turns_share(facts) >= LEAST_SPREAD


def _turns_share(facts: JobFacts) -> float:
    """Return the share of the steps that is lost because another rank computes longer before each collective
    of a step, the same one in every step: short and long batches by turns."""
    operations, members = facts.operations, len(facts.set.members)
    steps = len(facts.own_time.steps)
    inside = np.isin(operations.step.texts, facts.own_time.steps)[operations.step.code]
    key = (
        operations.member[inside].astype(np.int64) * len(operations.step.texts) + operations.step.code[inside]
    )
    counts = np.unique(key, return_counts=True)[1]
    if steps < LEAST_STEPS or len(counts) != members * steps or (counts != counts[0]).any():
        return 0.0
    computing = operations.parts[inside, COMPUTING].reshape(members, steps, counts[0])
    more = (computing - np.sort(computing, axis=0)[(members - 1) // 2]).astype(np.float64)
    mean = more.mean(axis=1)
    error = np.maximum(more.std(axis=1, ddof=1) / np.sqrt(steps), 1.0)
    certain = np.where(mean >= CERTAIN * error, mean, 0.0)
    in_turn = certain.max(axis=0).sum() - certain.sum(axis=1).max()
    return float(in_turn * steps / max(1, facts.job_ns))


def _finding(facts: JobFacts, uneven: Uneven, window_ns: int) -> Finding:
    per_step, said = time_ns(uneven.high_ns / uneven.of_steps), NO_FINDING
    work = facts.kernels.work[uneven.members]
    times = ratio(float(np.nanmax(work)), "as much as the peers") if np.isfinite(work).any() else None
    if uneven.pattern == "varying":
        title = f"A different rank computes longest each time: {per_step} per step lost"
        summary = (
            f"Batches are uneven. In {uneven.steps} of {count(uneven.of_steps, 'step')} one rank computes "
            f"longer than the others, and they wait for it. These were "
            f"{ranks_text(facts.ranks(uneven.members))}."
        )
    else:
        agreeing = AGREEING[len(uneven.members) > 1]
        said = finding_of_late(facts, uneven)
        who = capitalized(culprits_text(facts, uneven.members))
        title = f"{who} {agreeing.has} more work: {per_step} per step lost"
        summary = (
            f"{capitalized(agreeing.its)} kernels run with other shapes, or more often, than on the "
            f"other ranks, in {uneven.steps} of {count(uneven.of_steps, 'step')}.{own_report_text(said)} The "
            "other ranks wait."
        )
    return Finding(
        title=title,
        summary=summary,
        fix=fix_of(said, FIXES["experts" if EXPERT in facts.parallelism else "batches"]),
        cost_ns=uneven.high_ns,
        saving=Saving(0, uneven.high_ns, "estimate"),
        evidence=[
            ranks_evidence(facts, uneven.members),
            Evidence.of_window("Lost per rank", uneven.high_ns, window_ns),
            Evidence("Uneven in", number(uneven.steps, "step"), (f"of {uneven.of_steps}",)),
            Evidence("More computing", duration(uneven.part_ns / max(1, len(uneven.members)))),
            *([Evidence("Work by the sizes of inputs", times)] if times is not None else []),
        ],
        places=places_of(said) or late_places(facts, uneven.members, uneven.part),
        severity=Severity.INFO.when(uneven.may_be_chance),
    )


def _stages(facts: JobFacts, window_ns: int) -> Finding | None:
    """Return a finding if the slowest stage computes much longer than the others. The rank that computes
    least stands for its stage: a slow replica does not make the stage slow."""
    own = facts.own_time
    if own.staged:
        return None
    computing = own.parts_ns[:, :, 0].sum(axis=1)
    stages = [np.flatnonzero(own.role == role) for role in np.unique(own.role)]
    least = np.array([computing[stage].min() for stage in stages])
    slowest = int(least.argmax())
    others = int(median(np.delete(least, slowest)))
    more_ns = int(least[slowest]) - others
    if not others or more_ns < STAGE_SHARE * others or more_ns < LEAST_SHARE * window_ns:
        return None
    who = ranks_text(facts.ranks(stages[slowest]))
    return Finding(
        title=f"The pipeline stage of {who} computes {share(more_ns, others)} longer than the other stages",
        summary="A pipeline is as fast as its slowest stage: the others wait for its microbatches.",
        fix=FIXES["stages"],
        cost_ns=more_ns,
        saving=Saving(0, more_ns, "estimate"),
        evidence=[
            ranks_evidence(facts, stages[slowest]),
            Evidence.of_window("Computing above the others", more_ns, window_ns),
            Evidence("Computing of this stage", duration(float(least[slowest]))),
            Evidence("Computing of the others", duration(others)),
        ],
    )
