"""How much each fix saves, and in which order to make them: the trace replayed without what the fixes
remove."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Removal, Replay
from tb_gpudiag.facts.replay.unslowed import Unslowed
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.answer import Evidence, Finding, Removable, Saving
from tb_gpudiag.rules.faster_rest import REST_IS_FASTER, with_faster_rest
from tb_gpudiag.rules.shared.slowed_recording import LEAST_SLOWED, trusted_replay, why_not_replayed
from tb_gpudiag.vocabulary import levels

# Even where the replay of the recording has no error, a replay with a fix may have one: simulated fixes save
# up to 3% less than their replay says. The upper end removes all of the cost and needs no margin.
LEAST_MARGIN = levels.NOTICEABLE

# A fix that saves less than this share of the window on top of those before it does not belong in the plan:
# the others already save it.
LEAST_PLANNED = 0.001


# Below this, the two figures read the same.
MORE_THAN_COST = 1.01


@dataclass(frozen=True, eq=False)
class Predicted:
    """What changes save together of the recorded step window.

    unslowed: None unless the recorder slows the host. A fix may give back another share of the step without
    the recorder than of the recorded one: of 24 real jobs on a GPU whose fixes were timed without the
    profiler, seven gave more than the host as recorded allows, and one less.
    """

    replay: Replay
    unslowed: Unslowed | None

    def least(self, *changes: Removal) -> int:
        """Return what they save at least, if they remove what they surely do."""
        recorded_ns = self.replay.unchanged.window_ns
        saved_ns = recorded_ns - self.replay.run(*changes).window_ns
        if self.unslowed is not None:
            saved_ns = min(saved_ns, self._of_recorded(self._saved_unslowed(self.unslowed, *changes)))
        return saved_ns - max(self._error_ns, round(LEAST_MARGIN * saved_ns))

    def most(self, *changes: Removal) -> int:
        """Return what they save at most: with the replay's error, within what is there."""
        bound_ns = self.replay.most_saved(*changes)
        saved_ns = self.replay.unchanged.window_ns - self.replay.run(*changes).window_ns
        saved_ns = max(0, min(saved_ns + self._error_ns, bound_ns))
        if self.unslowed is None:
            return saved_ns
        unslowed_ns = self._saved_unslowed(self.unslowed, *changes) + self._error_ns
        return max(saved_ns, self._of_recorded(min(unslowed_ns, bound_ns)))

    def _saved_unslowed(self, unslowed: Unslowed, *changes: Removal) -> int:
        return unslowed.least_ns - self.replay.run(*changes, sooner=unslowed.sooner).window_ns

    def _of_recorded(self, unslowed_ns: int) -> int:
        """Return the time of the recorded window that is the same share of it."""
        assert self.unslowed is not None
        return round(unslowed_ns * self.unslowed.recorded_ns / max(1, self.unslowed.least_ns))

    @property
    def _error_ns(self) -> int:
        return round(self.replay.error * self.replay.measured.window_ns)


@dataclass(frozen=True)
class PlannedFix:
    """A fix of the plan, on top of those before it. `finding` is its index in the list of findings."""

    finding: int
    saving_ns: int
    window_ns: int  # the step window after this fix


def predicted_of(facts: Facts) -> Predicted | None:
    """Return what predicts savings; None where the replay cannot be trusted."""
    replay = trusted_replay(facts)
    if replay is None or not facts.recorded.operators or facts.unslowed.most_slowed < LEAST_SLOWED:
        return None if replay is None else Predicted(replay, None)
    return Predicted(replay, facts.unslowed)


def with_saving(finding: Finding, facts: Facts, predicted: Predicted | None) -> Finding:
    """Return the finding with what a fix saves; unchanged if it costs no time, or is not known yet.

    predicted: None if the replay cannot be trusted. Then only bounds are known.
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
    if predicted is not None:
        saving = _replayed(predicted, finding.removable, finding.cost_ns)
        return _with_beyond(replace(finding, saving=_inside(saving, window_ns)), finding.removable.beyond)
    found = replace(
        finding,
        saving=_inside(_bounded(facts.replay, finding), window_ns),
        evidence=[*finding.evidence, Evidence("Saving not replayed", why_not_replayed(facts))],
    )
    return _with_beyond(found, finding.removable.beyond)


def _replayed(predicted: Predicted, removable: Removable, cost_ns: int) -> Saving:
    """What the replay gives. The low end is never more than the fix surely removes of the finding's own cost:
    what it saves beyond that, by letting the host get ahead, other fixes may save, too."""
    high_ns = predicted.most(removable.most)
    if removable.least is None:
        return Saving(0, high_ns, "replayed")
    sure_ns = round(removable.least.share * cost_ns)
    return Saving(min(predicted.least(removable.least), sure_ns, high_ns), high_ns, "replayed")


def _bounded(replay: Replay, finding: Finding) -> Saving:
    """What no fix exceeds, though the replay cannot say how much it saves."""
    assert finding.removable is not None
    high_ns = replay.most_saved(finding.removable.most)
    low_ns = min(finding.removable.sure_ns, high_ns)
    return Saving(low_ns, high_ns, "estimate" if low_ns else "at most")


def _on_cpu(finding: Finding, window_ns: int) -> Finding:
    """Return the finding with a saving: all that its fix removes, and the rest gets faster, too."""
    removed_ns, beyond, removable = finding.cost_ns, REST_IS_FASTER, finding.removable
    if removable is not None and removable.most.host.total > MORE_THAN_COST * removed_ns:
        removed_ns, beyond = removable.most.host.total, f"{removable.beyond}, and {beyond}"
    saving = Saving(0, with_faster_rest(removed_ns, window_ns), "estimate")
    return _with_beyond(replace(finding, saving=saving), beyond)


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


def plan_fixes(predicted: Predicted, findings: Sequence[Finding]) -> list[PlannedFix]:
    """Return what each replayable finding saves at most on top of those before it, in the order of the
    findings.

    The sum is what all fixes save together: no nanosecond counts twice, and it is at most the step window. A
    fix that adds nothing is left out.
    """
    window_ns = predicted.replay.measured.window_ns
    made: list[Removal] = []
    plan: list[PlannedFix] = []
    saved_ns = 0
    for i, finding in enumerate(findings):
        if finding.removable is None:
            continue
        together_ns = min(predicted.most(*made, finding.removable.most), window_ns)
        if together_ns - saved_ns < LEAST_PLANNED * window_ns:
            continue
        made.append(finding.removable.most)
        plan.append(PlannedFix(i, together_ns - saved_ns, window_ns - together_ns))
        saved_ns = together_ns
    return plan
