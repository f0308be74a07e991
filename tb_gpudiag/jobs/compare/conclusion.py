"""The verdict of a comparison and its sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.compare.caveats import notes, obstacles, other_work
from tb_gpudiag.jobs.compare.difference import Difference
from tb_gpudiag.jobs.compare.noise import SAME_WITHIN, Noise, noise_between
from tb_gpudiag.jobs.compare.side import Side
from tb_gpudiag.jobs.compare.work import Shapes
from tb_gpudiag.jobs.part_words import change_of_part, signed_ns
from tb_gpudiag.wording.format import count, share, time_ns

FASTER: Final = "FASTER"
SLOWER: Final = "SLOWER"
SAME: Final = "SAME"
CANNOT_TELL: Final = "CANNOT_TELL"

SAME_RECORDING: Final = "Both sides are the same recording."

# A wider interval does not show that two runs are the same.
SAME_AT_MOST: Final = 0.05

# The sentence names parts of the difference that are at least this share of it.
_NAMED_PART: Final = 0.2
_MOST_NAMED: Final = 3


@dataclass(frozen=True)
class Conclusion:
    """The verdict, its sentence, and notes: one sentence each.

    within: if the sides are the same, they differ at most by this share of the base's step. noise: equal code
    may differ by this share. obstacles: why the sides do not do the same work on the same kind of machine, as
    clauses. reasons: why the verdict is CANNOT_TELL.
    """

    verdict: str
    sentence: str
    notes: list[str]
    within: float
    noise: float = 0.0
    obstacles: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judgement:
    """A verdict. within: as in Conclusion. by_mean: only the means show it, not the medians. reasons: why the
    verdict is CANNOT_TELL."""

    verdict: str
    within: float = 0.0
    by_mean: bool = False
    reasons: tuple[str, ...] = ()


def conclude(
    base: Side, candidate: Side, median: Difference, mean: Difference, shapes: Shapes | None
) -> Conclusion:
    """Judge the difference between the sides."""
    if base.same_recording(candidate):
        return Conclusion(SAME, SAME_RECORDING, [], 0.0)
    reasons = tuple(obstacles(base, candidate, shapes))
    noise = noise_between(base, candidate)
    judged = Judgement(CANNOT_TELL, reasons=reasons) if reasons else _judged(median, mean, noise)
    return Conclusion(
        judged.verdict,
        _sentence(judged, base, candidate, median, mean),
        notes(base, candidate, shapes),
        judged.within,
        noise.least,
        tuple(other_work(base, candidate, shapes)),
        judged.reasons,
    )


def _judged(median: Difference, mean: Difference, noise: Noise) -> Judgement:
    """Judge comparable sides by the median step, unless slow steps make the mean step contradict it."""
    verdict, within = _by_median(median, noise)
    if verdict in (FASTER, SLOWER):
        contradicted = median.value * mean.value < 0 and abs(mean.share) > SAME_WITHIN
        return (
            _contradicted(verdict)
            if contradicted
            else _unless_explained(Judgement(verdict), (median, mean), noise)
        )
    if noise.means and mean.significant and not noise.hides(mean.base, mean.candidate):
        by_mean = Judgement(SLOWER if mean.value > 0 else FASTER, by_mean=True)
        return _unless_explained(by_mean, (mean,), noise)
    if noise.why and noise.least > SAME_AT_MOST:
        return _cannot_tell(noise.why)
    if verdict == SAME and abs(mean.share) > SAME_AT_MOST:
        return _cannot_tell("median steps are the same, and some steps are slow")
    return Judgement(SAME, within) if verdict == SAME else _cannot_tell("the steps vary too much")


def _contradicted(verdict: str) -> Judgement:
    shorter, longer = ("median", "mean") if verdict == FASTER else ("mean", "median")
    return _cannot_tell(f"the {shorter} step is shorter and the {longer} step longer")


def _unless_explained(judged: Judgement, differences: Sequence[Difference], noise: Noise) -> Judgement:
    """The operators' times are means, and the medians of steps that vary may differ by more."""
    explained = any(noise.explains(one.base, one.candidate) for one in differences)
    return _cannot_tell(noise.machine) if explained else judged


def _cannot_tell(reason: str) -> Judgement:
    return Judgement(CANNOT_TELL, reasons=(reason,))


def _by_median(median: Difference, noise: Noise) -> tuple[str, float]:
    """Return the verdict, and how alike the sides are if they are the same."""
    if median.base <= 0:
        return CANNOT_TELL, 0.0
    if median.significant and not noise.hides(median.base, median.candidate):
        return (SLOWER if median.value > 0 else FASTER), 0.0
    within = max(abs(median.low), abs(median.high)) / median.base
    return (SAME, within) if within <= SAME_AT_MOST else (CANNOT_TELL, 0.0)


def _sentence(judged: Judgement, base: Side, candidate: Side, median: Difference, mean: Difference) -> str:
    times = time_ns(median.base), time_ns(median.candidate)
    medians = f"medians of {len(base.samples_ns):,} and {count(len(candidate.samples_ns), 'step')}"
    both = f"a step takes {times[0]} in the base and {times[1]} in the candidate"
    why = _reasons(base, candidate) if abs(mean.share) > SAME_WITHIN else ""
    if judged.verdict == CANNOT_TELL:
        has_steps = len(base.samples_ns) and len(candidate.samples_ns)
        known = f" {both[0].upper()}{both[1:]} ({medians}).{why}" if has_steps else ""
        return f"Cannot tell which is faster: {'; '.join(judged.reasons)}.{known}"
    if judged.verdict == SAME:
        return f"The same within {share(judged.within)}: {both} ({medians}; {_interval(median, 95)}).{why}"
    by = f"{judged.verdict.capitalize()}{' on average' if judged.by_mean else ''} by"
    if judged.by_mean:
        return (
            f"{by} {share(abs(mean.share))}: {_moved(mean)} (mean; {_interval(mean, 99)}). "
            f"Some steps are slow: the medians are {times[0]} and {times[1]}.{why}"
        )
    return (
        f"{by} {share(abs(median.share))}: {_moved(median)} ({medians}; {_interval(median, 95)})."
        f"{_reasons(base, candidate)}"
    )


def _moved(difference: Difference) -> str:
    return f"{time_ns(difference.candidate)} per step instead of {time_ns(difference.base)}"


def _interval(difference: Difference, percent: int) -> str:
    return f"{percent}% confidence: {signed_ns(difference.low)} to {signed_ns(difference.high)}"


def _reasons(base: Side, candidate: Side) -> str:
    """Name the parts that changed most."""
    of_base, of_candidate = base.part_ns, candidate.part_ns
    names = list(dict.fromkeys([*of_base, *of_candidate]))
    moved = {name: of_candidate.get(name, 0.0) - of_base.get(name, 0.0) for name in names}
    whole = candidate.mean_step_ns - base.mean_step_ns
    named = [name for name in names if abs(moved[name]) >= _NAMED_PART * abs(whole) > 0]
    named = sorted(named, key=lambda name: -abs(moved[name]))[:_MOST_NAMED]
    if not named:
        return ""
    parts = ", ".join(change_of_part(name, moved[name]) for name in named)
    return f" The mean step is {time_ns(abs(whole))} {'shorter' if whole < 0 else 'longer'}: {parts}."
