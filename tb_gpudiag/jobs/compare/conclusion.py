"""The verdict of a comparison and its sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tb_gpudiag.jobs.compare.caveats import SAME_WITHIN, notes, obstacles, other_work
from tb_gpudiag.jobs.compare.difference import Difference
from tb_gpudiag.jobs.compare.side import Side
from tb_gpudiag.jobs.compare.work import Shapes
from tb_gpudiag.jobs.part_words import part_noun, signed_ns
from tb_gpudiag.wording.format import count, share, time_ns

FASTER: Final = "FASTER"
SLOWER: Final = "SLOWER"
SAME: Final = "SAME"
CANNOT_TELL: Final = "CANNOT_TELL"

# An interval that reaches further than this does not show that two runs are the same.
SAME_AT_MOST: Final = 0.05

# A part of the difference that is worth naming in the sentence, as a share of the whole difference.
_NAMED_PART: Final = 0.2
_MOST_NAMED: Final = 3


@dataclass(frozen=True)
class Conclusion:
    """Verdict and its sentence, and notes: one sentence each.

    within: share of the base's step by which the sides differ at most, if they are the same. comparable: the
    sides do the same work on the same kind of machine.
    """

    verdict: str
    sentence: str
    notes: list[str]
    within: float
    comparable: bool


def conclude(base: Side, candidate: Side, difference: Difference, shapes: Shapes | None) -> Conclusion:
    """Judge the difference between the sides."""
    if base.same_recording(candidate):
        return Conclusion(SAME, "Both sides are the same recording.", [], 0.0, comparable=True)
    reasons = obstacles(base, candidate, shapes)
    verdict, within = (CANNOT_TELL, 0.0) if reasons else _judged(difference)
    if verdict == CANNOT_TELL and not reasons:
        reasons = ["the steps vary too much"]
    comparable = not other_work(base, candidate, shapes)
    sentence = _sentence(verdict, base, candidate, difference, reasons, within)
    return Conclusion(verdict, sentence, notes(base, candidate, shapes), within, comparable)


def _judged(difference: Difference) -> tuple[str, float]:
    """Verdict on comparable sides, and how alike they are if they are the same."""
    if difference.base <= 0:
        return CANNOT_TELL, 0.0
    relative = difference.value / difference.base
    within = max(abs(difference.low), abs(difference.high)) / difference.base
    if difference.significant and abs(relative) > SAME_WITHIN:
        return (SLOWER if relative > 0 else FASTER), 0.0
    return (SAME, within) if within <= SAME_AT_MOST else (CANNOT_TELL, 0.0)


def _sentence(
    verdict: str,
    base: Side,
    candidate: Side,
    difference: Difference,
    reasons: Sequence[str],
    within: float,
) -> str:
    times = time_ns(difference.base), time_ns(difference.candidate)
    medians = f"medians of {len(base.samples_ns):,} and {count(len(candidate.samples_ns), 'step')}"
    interval = f"95% confidence: {signed_ns(difference.low)} to {signed_ns(difference.high)}"
    if verdict == CANNOT_TELL:
        known = f" A step takes {times[0]} in the base and {times[1]} in the candidate ({medians})."
        has_steps = len(base.samples_ns) and len(candidate.samples_ns)
        return f"Cannot tell which is faster: {'; '.join(reasons)}.{known if has_steps else ''}"
    if verdict == SAME:
        return (
            f"The same within {share(within)}: a step takes {times[0]} in the base and {times[1]} in the "
            f"candidate ({medians}; {interval})."
        )
    less = share(abs(difference.value), difference.base)
    return (
        f"The candidate is {verdict.lower()}: a step takes {times[1]} instead of {times[0]}, {less} "
        f"{'more' if verdict == SLOWER else 'less'} ({medians}; {interval}).{_reasons(base, candidate)}"
    )


def _reasons(base: Side, candidate: Side) -> str:
    """The parts that changed most."""
    of_base, of_candidate = base.part_ns, candidate.part_ns
    names = list(dict.fromkeys([*of_base, *of_candidate]))
    moved = {name: of_candidate.get(name, 0.0) - of_base.get(name, 0.0) for name in names}
    whole = candidate.mean_step_ns - base.mean_step_ns
    named = [name for name in names if abs(moved[name]) >= _NAMED_PART * abs(whole) > 0]
    named = sorted(named, key=lambda name: -abs(moved[name]))[:_MOST_NAMED]
    if not named:
        return ""
    parts = ", ".join(f"{part_noun(name)} {signed_ns(moved[name])}" for name in named)
    return f" The mean step changed by {signed_ns(whole)}: {parts}."
