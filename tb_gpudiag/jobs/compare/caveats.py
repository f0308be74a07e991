"""What makes two sides hard or impossible to compare, in words, with its thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tb_gpudiag.jobs.compare.noise import SAME_WITHIN
from tb_gpudiag.jobs.compare.side import Side
from tb_gpudiag.jobs.compare.work import Scaling, Shapes, hides_kernels, in_graphs
from tb_gpudiag.jobs.part_words import signed_ns
from tb_gpudiag.wording.format import count, figures, in_quotes, one_line, share, time_ns
from tb_gpudiag.wording.good_recording import RECORDERS

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
