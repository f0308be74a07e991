"""How much each fix saves, and in which order to make them.

Two things decide: what can come back, by the trace replayed without the recorder and without what the fix
removes; and how much of that did come back in jobs that were timed before and after a fix (given_back.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

import numpy as np

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Removal, Replay
from tb_gpudiag.facts.replay.unslowed import Unslowed
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.answer import NO_SAVING, Evidence, Finding, Removable, Saving, SavingBasis
from tb_gpudiag.rules.given_back import UNSEEN, GivenBack, comes_back, given_back
from tb_gpudiag.rules.shared.odd_recordings import steps_end_unseen
from tb_gpudiag.rules.shared.slowed_recording import why_not_replayed

# A fix that saves less than this share of the window on top of those before it does not belong in the plan:
# the others already save it.
LEAST_PLANNED = 0.001

# Below this, the two figures read the same.
MORE_THAN_COST = 1.01

# Why more than that may come back if the fix frees nothing else. Where ranks, workers, threads share cores,
# what stays runs faster, too: half of the timed recordings of a CPU gave more than the finding's time.
GAVE_MORE = "jobs that were timed before and after such a fix gave more, too"

# A range whose ends are further apart decides nothing: only its upper end is said.
WIDEST = 5.0


@dataclass(frozen=True, eq=False)
class Predicted:
    """What changes save together of the step window without the recorder, as shares of it."""

    replay: Replay
    unslowed: Unslowed

    def saved(self, *changes: Removal) -> float:
        """Return what the replay says."""
        return self._rest(self.replay.run(*changes, sooner=self.unslowed.sooner).window_ns)

    def allowed(self, *changes: Removal) -> float:
        """Return the most that the account allows: the GPU's other work still takes its time."""
        return self._rest(self.replay.shortest_ns(*changes))

    def _rest(self, left_ns: int) -> float:
        return max(0.0, 1 - left_ns / max(1, self.unslowed.likely_ns))


@dataclass(frozen=True)
class PlannedFix:
    """A fix of the plan. `finding` is its index in the list of findings. Times are over the step window, as
    in Saving: what the fix saves on top of those before it, and what all of them save together."""

    finding: int
    saving_ns: int
    low_ns: int
    likely_ns: int
    high_ns: int


def predicted_of(facts: Facts) -> Predicted | None:
    """Return what predicts savings; None without a GPU, or if the steps cannot be compared."""
    if facts.device is None or not facts.window.duration_ns or steps_end_unseen(facts):
        return None
    return Predicted(facts.replay, facts.unslowed)


def with_saving(finding: Finding, facts: Facts, predicted: Predicted | None, fix: str = UNSEEN) -> Finding:
    """Return the finding with what such a fix saves; unchanged if it costs no time, or is not known."""
    if finding.records_again or finding.saving is NO_SAVING or not (finding.cost_ns or finding.saving):
        return finding
    window_ns = facts.window.duration_ns
    if (removes := removes_of(finding, facts, predicted)) is None:
        return replace(finding, saving=_inside(finding.saving or Saving(0, finding.cost_ns), window_ns))
    if predicted is None:
        return replace(finding, saving=saving_of(removes, given_back("cpu", fix), window_ns, "estimate"))
    why, saving = why_not_replayed(facts), saving_of(removes, given_back("gpu", fix), window_ns, "replayed")
    if not why:
        return replace(finding, saving=saving)
    label = "Saving less sure"
    if not saving.low_ns:  # nothing is left of the range
        label, saving = (
            "Saving not replayed",
            Saving(0, min(finding.cost_ns, int(removes.account * window_ns))),
        )
    return replace(finding, saving=saving, evidence=[*finding.evidence, Evidence(label, why)])


@dataclass(frozen=True)
class Removes:
    """What a fix removes of the step window without the recorder. All are shares of it.

    possible: what can come back, at least and at most. cost: what its finding costs. account: the bound on
    every saving, what is left when the GPU's other work still takes its time; 1 on a CPU, where the rest may
    take less time as well. error: by how much `possible` may be wrong. beyond: which other time the fix
    frees.
    """

    possible: tuple[float, float]
    cost: float
    account: float = 1.0
    error: float = 0.0
    beyond: str = ""


def removes_of(finding: Finding, facts: Facts, predicted: Predicted | None) -> Removes | None:
    """Return what a fix removes: no more time than was recorded. None if nothing shows it."""
    step_ns = max(1.0, facts.window.duration_ns * facts.unprofiled_share)
    cost = finding.cost_ns / step_ns
    if not cost or not (facts.on_cpu or None not in (predicted, finding.removable)):
        return None
    removable = finding.removable or Removable(Removal(), beyond="")
    most, host = removable.most, removable.most.host
    if predicted is not None:
        low, high = sorted(predicted.saved(change) for change in (removable.least or most, most))
        account, error = predicted.allowed(most), predicted.replay.error
        return Removes((low, high), cost, account, error, removable.beyond)
    # The rest of the main thread's time stays. How much of a finding's is the recorder's is known less well.
    time = finding.slowed.time if finding.slowed else host
    freed = max(cost * facts.without_recorder(time), host.total * facts.without_recorder(host) / step_ns)
    return Removes((min(1.0, max(cost, host.total / step_ns), freed),) * 2, cost, beyond=removable.beyond)


def promised_range(
    possible: tuple[float, float], back: GivenBack, error: float, allowed: float
) -> tuple[float, float, float]:
    """Return the low end, the most likely value and the high end of what comes back. All are shares of the
    window.

    possible: what can come back, at least and at most. error: by how much that may be wrong. allowed: the
    most that there is.
    """
    error = min(error, possible[1])
    low = comes_back(possible[0], back.low) - error
    likely = comes_back(sqrt(possible[0] * possible[1]), back.likely)
    # Where it may be nothing, nothing is likely, and no more than the replay's most.
    more = min(comes_back(possible[1], back.high), possible[1] + likely)
    high = max(0.0, min(allowed, max(likely, more + error)))
    likely = min(likely, high)
    return (min(low, likely) if WIDEST * low >= high else 0.0), likely, high


def saving_of(removes: Removes, back: GivenBack, window_ns: int, basis: SavingBasis) -> Saving:
    """Return how much of what is possible comes back."""
    shares = promised_range(removes.possible, back, removes.error, removes.account)
    low_ns, likely_ns, high_ns = (round(share * window_ns) for share in shares)
    reason = removes.beyond if removes.possible[1] > MORE_THAN_COST * removes.cost else GAVE_MORE
    beyond = reason if shares[2] > MORE_THAN_COST * removes.cost else ""
    return Saving(low_ns, high_ns, basis, beyond, likely_ns, removes.possible, back.pairs)


def _inside(saving: Saving, most_ns: int) -> Saving:
    """Return the saving between 0 and the most that there is, its low end not above its high end."""
    high_ns = min(max(saving.high_ns, 0), most_ns)
    return replace(saving, low_ns=min(max(saving.low_ns, 0), high_ns), high_ns=high_ns)


def plan_fixes(predicted: Predicted, findings: Sequence[Finding]) -> list[PlannedFix]:
    """Return what each replayable finding saves on top of those before it, in the order of the findings.

    No nanosecond counts twice, and all fixes together save no more than the account allows. A fix that adds
    nothing is left out.
    """
    window_ns = predicted.replay.measured.window_ns
    made: list[Removal] = []
    plan: list[PlannedFix] = []
    so_far, together = 0.0, np.zeros(3)
    for i, finding in enumerate(findings):
        removable, saving = finding.removable, finding.saving
        if removable is None or saving is None or saving.basis != "replayed":
            continue
        alone = np.array([saving.low_ns, saving.likely_ns, saving.high_ns])
        saved = predicted.saved(*made, removable.most)
        if saved - so_far < LEAST_PLANNED:
            continue
        made.append(removable.most)
        part = (saved - so_far) / max(LEAST_PLANNED, saving.possible[1])
        before, allowed_ns = together, predicted.allowed(*made) * window_ns
        together = np.minimum(together + alone * part, allowed_ns)
        low_ns, likely_ns, high_ns = np.rint(together).astype(int).tolist()
        plan.append(PlannedFix(i, round(together[1] - before[1]), low_ns, likely_ns, high_ns))
        so_far = saved
    return plan
