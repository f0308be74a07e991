"""The verdict of a comparison and its sentence; and what makes two sides hard or impossible to compare, in
words, with its thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.compare.held import is_of_memory, memory_notes, memory_sentence
from tb_gpudiag.jobs.compare.noise import SAME_WITHIN, Difference, Noise, more_calls, more_work, noise_between
from tb_gpudiag.jobs.compare.side import Side
from tb_gpudiag.jobs.compare.work import Scaling, Shapes, hides_kernels, in_graphs, module_changes
from tb_gpudiag.jobs.step_parts import change_of_part, signed_ns
from tb_gpudiag.wording.format import count, figures, in_quotes, one_line, share, time_ns
from tb_gpudiag.wording.good_recording import RECORDERS

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

    within: if the sides are the same, they differ at most by this share of the base's step. noise: mean steps
    of equal code may differ by this share. obstacles: why the sides do not do the same work on the same kind
    of machine, as clauses. reasons: why the verdict is CANNOT_TELL.
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
    """A verdict. within: as in Conclusion. by_mean: only the means show it, not the medians. work: what
    counts of calls show, if only they do. reasons: why the verdict is CANNOT_TELL."""

    verdict: str
    within: float = 0.0
    by_mean: bool = False
    work: str = ""
    reasons: tuple[str, ...] = ()


def conclude(
    base: Side, candidate: Side, median: Difference, mean: Difference, shapes: Shapes | None
) -> Conclusion:
    """Judge the difference between the sides."""
    if base.same_recording(candidate):
        return Conclusion(SAME, SAME_RECORDING, [], 0.0)
    if is_of_memory(base) and is_of_memory(candidate):
        said = memory_sentence(base, candidate)
        return Conclusion(CANNOT_TELL, said, memory_notes(base, candidate), 0.0)
    reasons = tuple(obstacles(base, candidate, shapes))
    noise = noise_between(base, candidate)
    judged = Judgement(CANNOT_TELL, reasons=reasons) if reasons else _judged(median, mean, noise)
    work = None if reasons else more_work(base, candidate)
    if work and judged.verdict != (by_work := SLOWER if work.moved_ns > 0 else FASTER):
        pace = f"took {figures(work.pace)} times as long in the candidate, which is the machine"
        judged = Judgement(by_work, work=f"{work.sentence} Calls that both make {pace}")
    return Conclusion(
        judged.verdict,
        _sentence(judged, base, candidate, median, mean),
        notes(base, candidate, shapes),
        judged.within,
        noise.of_savings,
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
    if mean.exceeds(noise.of_means):
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
    if median.exceeds(noise.least):
        return (SLOWER if median.value > 0 else FASTER), 0.0
    within = max(abs(median.low), abs(median.high)) / median.base
    return (SAME, within) if within <= SAME_AT_MOST else (CANNOT_TELL, 0.0)


def _sentence(judged: Judgement, base: Side, candidate: Side, median: Difference, mean: Difference) -> str:
    times = time_ns(median.base), time_ns(median.candidate)
    medians = f"medians of {len(base.samples_ns):,} and {count(len(candidate.samples_ns), 'step')}"
    both = f"a step takes {times[0]} in the base and {times[1]} in the candidate"
    why = _reasons(base, candidate) if abs(mean.share) > SAME_WITHIN else ""
    if judged.verdict == CANNOT_TELL:
        untold = f"Cannot tell which is faster: {'; '.join(judged.reasons)}."
        if not len(base.samples_ns) or not len(candidate.samples_ns):
            return untold
        longer = "longer" if median.value > 0 else "less"
        by = f"{share(abs(median.share))} {longer}"
        measured = f"The candidate's steps took {by}: {_moved(median)} ({medians})."
        work = "" if base.on_gpu or candidate.on_gpu else f" {more_calls(base, candidate).sentence}"
        return f"{measured} {untold}{work}{why}"
    if judged.verdict == SAME:
        return f"The same within {share(judged.within)}: {both} ({medians}; {_interval(median, 95)}).{why}"
    if judged.work:
        return f"{judged.verdict.capitalize()} by its work: {judged.work}: {both} ({medians})."
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
    said = f" The mean step is {time_ns(abs(whole))} {'shorter' if whole < 0 else 'longer'}: {parts}."
    return f"{said}{_module(base, candidate, whole)}"


def _module(base: Side, candidate: Side, whole_ns: float) -> str:
    """Name the module that changed most, if that is much of the difference."""
    for row in module_changes(base, candidate)[:1]:
        moved_ns = (row.candidate_us - row.base_us) * 1e3
        if moved_ns * whole_ns > 0 and abs(moved_ns) >= _NAMED_PART * abs(whole_ns):
            return f" Kernels of {in_quotes(row.name, 80)} take {signed_ns(moved_ns)} per step."
    return ""


# With 5 steps on each side, the 95% interval misses the truth in 3% of simulated comparisons, with 3 and 5 in
# 8%, with 2 and 8 in 19%.
FEWEST_STEPS: Final = 5

# With more of the time in operators with other input shapes, the two sides do different work. Padding a
# dimension, which is a fix, changes one of many shapes.
MOST_OTHER_WORK: Final = 0.5

# But a difference is not due to that work if all of it takes less than this share of the difference: a fix
# that removes recompilations, copies or a loop leaves operators with other shapes.
TOO_LITTLE_WORK: Final = 0.5


def obstacles(base: Side, candidate: Side, shapes: Shapes | None) -> list[str]:
    """Return reasons against any verdict, as clauses."""
    return [*other_work(base, candidate, shapes), *_too_few_steps(base, candidate)]


def other_work(base: Side, candidate: Side, shapes: Shapes | None) -> list[str]:
    """Return what makes the times of a step incomparable, as clauses."""
    found = _other_recording(base, candidate)
    if shapes is not None and _is_other_work(base, candidate, shapes):
        found.append(_other_shapes(shapes, on_gpu=base.on_gpu))
    return found


def _is_other_work(base: Side, candidate: Side, shapes: Shapes) -> bool:
    if shapes.other <= MOST_OTHER_WORK:
        return False
    if shapes.scaling is not None and shapes.scaled > MOST_OTHER_WORK:
        return True
    moved_ns = abs(candidate.mean_step_ns - base.mean_step_ns)
    return shapes.other_ns >= TOO_LITTLE_WORK * moved_ns


def _other_recording(base: Side, candidate: Side) -> list[str]:
    found = [
        f"the {name} is a {side.first.about.kind.replace('_', ' ')} and not a trace"
        for side, name in ((base, "base"), (candidate, "candidate"))
        if side.first.about.kind != "trace"
    ]
    one, other = base.first.about, candidate.first.about
    if one.simulated != other.simulated:
        simulated, recorded = ("base", "candidate") if one.simulated else ("candidate", "base")
        found.append(f"the {simulated} is simulated and the {recorded} was recorded")
    if 0 != one.world_size != other.world_size != 0:
        found.append(f"the base has {count(one.world_size, 'rank')} and the candidate {other.world_size:,}")
    return [*found, *_other_device(base, candidate)]


def _other_device(base: Side, candidate: Side) -> list[str]:
    if base.on_gpu != candidate.on_gpu:
        gpu, cpu = ("base", "candidate") if base.on_gpu else ("candidate", "base")
        return [f"the {gpu} uses a GPU and the {cpu} does not"]
    one, other = (sorted({each.about.device_name for each in side.digests}) for side in (base, candidate))
    if one != other and all([*one, *other]):
        return [f"they ran on different GPUs ({_names(one)} and {_names(other)})"]
    return []


def _too_few_steps(base: Side, candidate: Side) -> list[str]:
    found = []
    bases = base.first.about.steps_basis, candidate.first.about.steps_basis
    for side, name, basis in ((base, "base", bases[0]), (candidate, "candidate", bases[1])):
        steps = len(side.samples_ns)
        if basis == "none":
            found.append(f"the {name} has no steps")
        elif steps < FEWEST_STEPS:
            found.append(f"the {name} has only {count(steps, 'steady step')}; {FEWEST_STEPS} are needed")
    if set(bases) == {"recorded", "inferred"}:
        found.append("steps were recorded on one side and inferred on the other")
    return found


def _other_shapes(shapes: Shapes, *, on_gpu: bool) -> str:
    if shapes.scaling is not None and shapes.scaled > MOST_OTHER_WORK:
        return f"the inputs are {figures(shapes.scaling.factor)} times as large ({_example(shapes.scaling)})"
    return _share_of_other(shapes, on_gpu=on_gpu)


def _share_of_other(shapes: Shapes, *, on_gpu: bool) -> str:
    whose = "GPU" if on_gpu else "operators'"
    return f"{share(shapes.other)} of the {whose} time is in operators with other input shapes"


def _example(scaling: Scaling) -> str:
    sizes = one_line(scaling.base, 60), one_line(scaling.candidate, 60)
    return f"{in_quotes(scaling.operator, 60)}: {sizes[0]} and {sizes[1]}"


def _names(names: Sequence[str]) -> str:
    return " and ".join(in_quotes(name, 80) for name in names[:2])


def notes(base: Side, candidate: Side, shapes: Shapes | None) -> list[str]:
    """Return what makes the sides hard or impossible to compare, one sentence each."""
    return [
        *(f"{clause[0].upper()}{clause[1:]}." for clause in obstacles(base, candidate, shapes)),
        *_unknown(base, candidate, shapes),
        *_graphs(base, candidate),
        *_recording(base, candidate),
        *_ranks(base, candidate),
    ]


def _unknown(base: Side, candidate: Side, shapes: Shapes | None) -> list[str]:
    """Return what the traces do not show, or show in part."""
    found = []
    if shapes is None and base.on_gpu:
        found.append(
            "No operator has recorded input shapes on both sides: a different batch size would go unnoticed."
        )
    elif shapes is not None and shapes.other > SAME_WITHIN and not other_work(base, candidate, shapes):
        found.append(f"{_share_of_other(shapes, on_gpu=base.on_gpu)}.")
    named = base.first.about.device_name and candidate.first.about.device_name
    if base.on_gpu and candidate.on_gpu and not named:
        found.append("A trace does not name its GPU: a different GPU would go unnoticed.")
    return found


def _graphs(base: Side, candidate: Side) -> list[str]:
    """Say which side runs in CUDA graphs that were recorded as one event each, and what they hide."""
    if hides_kernels(base) == hides_kernels(candidate):
        return []
    name, side = ("candidate", candidate) if hides_kernels(candidate) else ("base", base)
    graphs, total = in_graphs(side)
    other = in_graphs(base if side is candidate else candidate)[1]
    return [
        f"The {name} runs {share(graphs, total)} of its GPU time, {time_ns(graphs)} per step, in CUDA graphs "
        f"that were recorded as one event each. The other side takes {time_ns(other)} for its kernels. "
        "Compare these totals: which kernels changed, and findings about kernels, cannot be told."
    ]


def _recording(base: Side, candidate: Side) -> list[str]:
    one, other = base.first.about, candidate.first.about
    found = []
    if one.recorder != other.recorder:
        names = RECORDERS[one.recorder], RECORDERS[other.recorder]
        found.append(
            f"{names[0]} recorded the base, {names[1]} the candidate: they cost different host time."
        )
    if one.stacks != other.stacks:
        recorded = "base" if one.stacks else "candidate"
        found.append(f"Only the {recorded} recorded call stacks, which costs host time.")
    if "inferred" in (one.steps_basis, other.steps_basis):
        found.append("Steps are inferred from repetition.")
    for side, name in ((base, "base"), (candidate, "candidate")):
        if any(digest.about.status != "COMPLETE" for digest in side.digests):
            found.append(f"The {name} is incomplete: a file is cut off or still being written.")
    return found


def _ranks(base: Side, candidate: Side) -> list[str]:
    """Say which rank changed most."""
    of_base, of_candidate = _by_rank(base), _by_rank(candidate)
    sizes = len(base.ranks), len(candidate.ranks)
    if sizes[0] != sizes[1]:
        return [f"The base has traces of {count(sizes[0], 'rank')}, the candidate of {sizes[1]:,}."]
    if len(of_base) < 2 or of_base.keys() != of_candidate.keys():
        return []
    moved = {rank: of_candidate[rank] - of_base[rank] for rank in of_base}
    rank = max(moved, key=lambda each: abs(moved[each]))
    return [
        f"Figures are means of {count(len(of_base), 'rank')}. Rank {rank} changed most: "
        f"{signed_ns(moved[rank])} per step."
    ]


def _by_rank(side: Side) -> dict[int, float]:
    """Return the mean step of each rank."""
    return {
        rank: float(steps.mean()) if len(steps) else 0.0
        for rank, steps in zip(side.ranks, side.steps.duration_ns, strict=True)
    }
