"""How much each fix saves, and in which order to make them: the trace replayed without what the fixes
remove."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Removal, Replay
from tb_gpudiag.rules.rule import Evidence, Finding, Saving
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
# in five real jobs, it took at least this share of its time.
REST_TAKES = 0.5

# A fix that saves less than this share of the window on top of those before it does not belong in the plan:
# the others already save it.
LEAST_PLANNED = 0.001


@dataclass(frozen=True)
class PlannedFix:
    """A fix of the plan, on top of those before it. `finding` is its index in the list of findings."""

    finding: int
    saving_ns: int
    window_ns: int  # the step window after this fix


def trusted_replay(facts: Facts) -> Replay | None:
    """Return the replay if there is a GPU and the model explains its waits, else None."""
    if facts.device is None or not facts.window.duration_ns or why_not_replayed(facts.replay):
        return None
    return facts.replay


def why_not_replayed(replay: Replay) -> str:
    """Say why nothing can be predicted from this trace; "" if it can."""
    if replay.unexplained_share > WORST_ERROR:
        waits = share(replay.unexplained_share)
        return f"waits that this trace does not explain take {waits} of the step window"
    if replay.unexplained_starts > MOST_STARTS:
        starts = share(replay.unexplained_starts)
        return f"{starts} of the GPU work starts at a time that this trace does not explain"
    if replay.part_error > WORST_ERROR:
        return f"one half of the recording predicts the other with an error of {share(replay.part_error)}"
    return ""


def with_upper_bound(replay: Replay, finding: Finding, reason: str) -> Finding:
    """Return the finding with a bound of its saving, and the reason why that is not replayed; unchanged if it
    cannot be replayed anyway, or has an estimate of its own."""
    if finding.removable is None or (finding.saving is not None and finding.saving.basis == "estimate"):
        return finding
    return replace(
        finding,
        saving=Saving(0, replay.most_saved(finding.removable.most)),
        evidence=[*finding.evidence, Evidence("Saving not replayed", reason)],
    )


def with_replayed_saving(replay: Replay, finding: Finding) -> Finding:
    """Return the finding with its replayed saving, or unchanged if it cannot be replayed."""
    if finding.removable is None:
        return finding
    least, most = finding.removable.least, finding.removable.most
    high = _saved(replay, most)
    low = high if least is most else 0 if least is None else _saved(replay, least)
    low, high = min(low, high), max(low, high)
    error_ns = round(replay.error * replay.measured.window_ns)
    low_ns = max(0, low - max(error_ns, round(LEAST_MARGIN * low)))
    high_ns = min(high + error_ns, replay.most_saved(most))
    return replace(finding, saving=Saving(min(low_ns, high_ns), high_ns, "replayed"))


def with_saving_on_cpu(finding: Finding, window_ns: int) -> Finding:
    """Return the finding with a saving in which the rest gets faster, too; unchanged without a saving."""
    saving = finding.saving
    if saving is None or not saving.high_ns:
        return finding
    rest_ns = max(0, window_ns - saving.high_ns)
    high_ns = window_ns - round(REST_TAKES * rest_ns)
    return replace(finding, saving=Saving(saving.low_ns, high_ns, "estimate"))


def with_bounded_saving(finding: Finding, window_ns: int) -> Finding:
    """Return the finding with a saving between 0 and the step window, its low end not above its high end."""
    saving = finding.saving
    if saving is None or 0 <= saving.low_ns <= saving.high_ns <= window_ns:
        return finding
    high_ns = min(max(saving.high_ns, 0), window_ns)
    return replace(
        finding, saving=replace(saving, low_ns=min(max(saving.low_ns, 0), high_ns), high_ns=high_ns)
    )


def plan_fixes(replay: Replay, findings: Sequence[Finding]) -> list[PlannedFix]:
    """Return what each replayable finding saves on top of those before it, in the order of the findings.

    The sum is what all fixes save together: no nanosecond counts twice, and it is at most the step window. A
    fix that adds nothing is left out.
    """
    order = [i for i, finding in enumerate(findings) if finding.removable is not None]
    window_ns = left_ns = replay.measured.window_ns
    before_ns, made, plan = replay.unchanged.window_ns, [], []
    for i in order:
        removable = findings[i].removable
        assert removable is not None
        made.append(removable.most)
        after_ns = replay.run(*made).window_ns
        saving_ns = min(before_ns - after_ns, left_ns)
        if saving_ns < LEAST_PLANNED * window_ns:
            made.pop()
            continue
        left_ns -= saving_ns
        plan.append(PlannedFix(i, saving_ns, left_ns))
        before_ns = after_ns
    return plan


def _saved(replay: Replay, change: Removal) -> int:
    return replay.unchanged.window_ns - replay.run(change).window_ns
