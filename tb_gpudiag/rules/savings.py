"""How much each fix saves, and in which order to make them: the trace replayed without what the fixes
remove."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Removal, Replay
from tb_gpudiag.rules.answer import Evidence, Finding, Removable, Saving
from tb_gpudiag.rules.shared.lost_records import steps_not_comparable
from tb_gpudiag.wording.format import share

# How far the model may be off in parts of the recording that it was not fitted to (Replay.error). Public
# traces of one rank's own work are off by 0.0 to 1.4%; those with waits for other ranks, or for something
# else that the trace does not have, by 2.5 to 73%.
WORST_ERROR = 0.02

# How much of the work may start at another time than predicted: at most 1% in public traces that the model
# explains. Random delays on all starts make it 20% and more.
MOST_STARTS = 0.10

# Even where the replay of the recording has no error, a replay with a fix may have one: simulated fixes save
# up to 3% less than their replay says. The upper end removes all of the cost and needs no margin.
LEAST_MARGIN = 0.05

# On a CPU, what remains gets faster, too: caches stay warm, and threads do not sleep. After the fix of four
# in five real jobs, it took at least this share of its time. But the rest gains no more than the fix removes:
# 5% of logging does not make the other 95% twice as fast.
REST_TAKES = 0.5

# A fix that saves less than this share of the window on top of those before it does not belong in the plan:
# the others already save it.
LEAST_PLANNED = 0.001


# Below this, the two figures read the same.
MORE_THAN_COST = 1.01

REPLAYED = "replayed"

_REST_IS_FASTER = "the rest may get faster, too: caches stay warm, and threads do not sleep"


@dataclass(frozen=True)
class PlannedFix:
    """A fix of the plan, on top of those before it. `finding` is its index in the list of findings."""

    finding: int
    saving_ns: int
    window_ns: int  # the step window after this fix


def trusted_replay(facts: Facts) -> Replay | None:
    """Return the replay if there is a GPU and the model explains its waits, else None."""
    if facts.device is None or not facts.window.duration_ns or why_not_replayed(facts):
        return None
    return facts.replay


def why_not_replayed(facts: Facts) -> str:
    """Say why nothing can be predicted from this trace; "" if it can."""
    if unknown := steps_not_comparable(facts):
        return unknown.reason
    replay = facts.replay
    if replay.unexplained_share > WORST_ERROR:
        waits = share(replay.unexplained_share)
        return f"waits that this trace does not explain take {waits} of the step window"
    if replay.unexplained_starts > MOST_STARTS:
        starts = share(replay.unexplained_starts)
        return f"{starts} of the GPU work starts at a time that this trace does not explain"
    if replay.part_error > WORST_ERROR:
        return f"one half of the recording predicts the other with an error of {share(replay.part_error)}"
    return ""


def with_saving(finding: Finding, facts: Facts, replay: Replay | None) -> Finding:
    """Return the finding with what a fix saves; unchanged if it costs no time, or is not known yet.

    replay: None if it cannot be trusted. Then only bounds are known.
    """
    window_ns = facts.window.duration_ns
    if finding.records_again:
        return finding
    if not finding.cost_ns:
        return (
            finding if finding.saving is None else replace(finding, saving=_inside(finding.saving, window_ns))
        )
    if facts.on_cpu:
        return _on_cpu(finding, window_ns)
    if facts.device is None or finding.removable is None:
        return replace(finding, saving=_inside(Saving(0, finding.cost_ns), window_ns))
    if replay is not None:
        saving = _replayed(replay, finding.removable, finding.cost_ns)
        return _with_beyond(replace(finding, saving=_inside(saving, window_ns)), finding.removable.beyond)
    found = replace(
        finding,
        saving=_inside(_bounded(facts.replay, finding), window_ns),
        evidence=[*finding.evidence, Evidence("Saving not replayed", why_not_replayed(facts))],
    )
    return _with_beyond(found, finding.removable.beyond)


def _replayed(replay: Replay, removable: Removable, cost_ns: int) -> Saving:
    """What the replay gives. The low end is never more than the fix surely removes of the finding's own cost:
    what it saves beyond that, by letting the host get ahead, other fixes may save, too."""
    high_ns = _most(replay, removable.most)
    if removable.least is None:
        return Saving(0, high_ns, REPLAYED)
    low_ns = replay.unchanged.window_ns - replay.run(removable.least).window_ns
    low_ns = low_ns - max(_error_ns(replay), round(LEAST_MARGIN * low_ns))
    sure_ns = round(removable.least.share * cost_ns)
    return Saving(min(low_ns, sure_ns, high_ns), high_ns, REPLAYED)


def _bounded(replay: Replay, finding: Finding) -> Saving:
    """What no fix exceeds, though the replay cannot say how much it saves."""
    assert finding.removable is not None
    high_ns = replay.most_saved(finding.removable.most)
    low_ns = min(finding.removable.sure_ns, high_ns)
    return Saving(low_ns, high_ns, "estimate" if low_ns else "at most")


def _on_cpu(finding: Finding, window_ns: int) -> Finding:
    """Return the finding with a saving: all that its fix removes, and the rest gets faster, too."""
    removed_ns, beyond, removable = finding.cost_ns, _REST_IS_FASTER, finding.removable
    if removable is not None and removable.most.host.total > MORE_THAN_COST * removed_ns:
        removed_ns, beyond = removable.most.host.total, f"{removable.beyond}, and {beyond}"
    removed_ns = min(removed_ns, window_ns)
    faster_ns = min(round((1 - REST_TAKES) * (window_ns - removed_ns)), removed_ns)
    return _with_beyond(replace(finding, saving=Saving(0, removed_ns + faster_ns, "estimate")), beyond)


def _inside(saving: Saving, window_ns: int) -> Saving:
    """Return the saving between 0 and the step window, its low end not above its high end."""
    high_ns = min(max(saving.high_ns, 0), window_ns)
    return replace(saving, low_ns=min(max(saving.low_ns, 0), high_ns), high_ns=high_ns)


def _with_beyond(finding: Finding, beyond: str) -> Finding:
    """Say what else a fix frees, if it may save more than the finding's own cost."""
    saving = finding.saving
    if saving is None or saving.high_ns <= MORE_THAN_COST * finding.cost_ns:
        return finding
    return replace(finding, saving=replace(saving, beyond=beyond))


def plan_fixes(replay: Replay, findings: Sequence[Finding]) -> list[PlannedFix]:
    """Return what each replayable finding saves at most on top of those before it, in the order of the
    findings.

    The sum is what all fixes save together: no nanosecond counts twice, and it is at most the step window. A
    fix that adds nothing is left out.
    """
    window_ns = replay.measured.window_ns
    made: list[Removal] = []
    plan: list[PlannedFix] = []
    saved_ns = 0
    for i, finding in enumerate(findings):
        if finding.removable is None:
            continue
        together_ns = min(_most(replay, *made, finding.removable.most), window_ns)
        if together_ns - saved_ns < LEAST_PLANNED * window_ns:
            continue
        made.append(finding.removable.most)
        plan.append(PlannedFix(i, together_ns - saved_ns, window_ns - together_ns))
        saved_ns = together_ns
    return plan


def _most(replay: Replay, *changes: Removal) -> int:
    """Return the most that these changes save together: with the replay's error, within what is there."""
    saved_ns = replay.unchanged.window_ns - replay.run(*changes).window_ns
    return max(0, min(saved_ns + _error_ns(replay), replay.most_saved(*changes)))


def _error_ns(replay: Replay) -> int:
    return round(replay.error * replay.measured.window_ns)
