"""Whether two sides do the same work: input shapes of the operators that both run, kernels in CUDA graphs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from tb_gpudiag.digest.digest import numbers, texts
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.compare.side import Side
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.vocabulary.kernel_names import WHOLE_GRAPH
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.wording.format import one_line

# The same share as for rules about kernels: see rules/shared/recording_advice.py.
HIDING_SHARE: Final = 0.10

_NUMBER: Final = lazy_re(r"\d+")

_NOTHING: Final = (0.0, 0.0)

Times = dict[str, float]
"""GPU time by input shapes."""


@dataclass(frozen=True)
class Scaling:
    """Shapes of an operator on both sides: each dimension is the same, or `factor` times as large."""

    factor: float
    operator: str
    base: str
    candidate: str


@dataclass(frozen=True)
class Shapes:
    """Input shapes of the operators that both sides run with recorded shapes.

    other: share of their GPU time that is in different shapes on the two sides. Shapes that one side has
    and the other side lacks without having others do not count: CUDA graphs hide operators. other_ns: time
    per step in shapes of one side only, on the side with more. scaling: the most common factor among the
    different shapes, with its largest example. scaled: share of the base's time that it explains.
    """

    other: float
    other_ns: float
    scaling: Scaling | None
    scaled: float


def module_changes(base: Side, candidate: Side) -> list[pb.OperatorDifference]:
    """Return the modules whose GPU time differs, per step and rank, largest difference first; none unless
    both sides know modules. A change of their names leaves a row on each side."""
    one, other = _by_module(base), _by_module(candidate)
    names = dict.fromkeys([*one, *other]) if one and other else {}
    found = [
        pb.OperatorDifference(
            name=one_line(name or "(no module)"),
            base_us=one.get(name, _NOTHING)[0],
            candidate_us=other.get(name, _NOTHING)[0],
            base_count=one.get(name, _NOTHING)[1],
            candidate_count=other.get(name, _NOTHING)[1],
        )
        for name in names
    ]
    return sorted(found, key=lambda row: -abs(row.candidate_us - row.base_us))


def _by_module(side: Side) -> dict[str, tuple[float, float]]:
    """Return µs and kernels per step and rank."""
    found: dict[str, tuple[float, float]] = {}
    for digest in side.digests:
        table, factor = digest.modules, side.per_step(digest)
        figures = (numbers(table, column) * factor for column in ("time_ns", "count"))
        for name, time_ns, kernels in zip(texts(table, "module"), *figures, strict=True):
            before = found.get(name, _NOTHING)
            found[name] = (before[0] + time_ns / 1e3, before[1] + kernels)
    return found


def compare_shapes(base: Side, candidate: Side) -> Shapes | None:
    """Compare the shapes by operator; None if no operator has recorded shapes on both sides."""
    of_base, of_candidate = _by_operator(base), _by_operator(candidate)
    pairs = {name: (times, of_candidate[name]) for name, times in of_base.items() if name in of_candidate}
    if not pairs:
        return None
    totals = [sum(sum(pair[side].values()) for pair in pairs.values()) for side in (0, 1)]
    if not all(totals):
        return None
    alone = [(_alone(own, other), _alone(other, own)) for own, other in pairs.values()]
    replaced = sum(min(each) for each in alone)
    other_ns = max(sum(each[side] for each in alone) for side in (0, 1))
    scaling, scaled_ns = _most_common_scaling(pairs)
    return Shapes(replaced / min(totals), other_ns, scaling, scaled_ns / totals[0])


def _by_operator(side: Side) -> dict[str, Times]:
    found: defaultdict[str, Times] = defaultdict(dict)
    for digest in side.digests:
        table, factor = digest.kernels, side.per_step(digest)
        columns = (texts(table, "operator"), texts(table, "shapes"), numbers(table, "time_ns").tolist())
        for operator, shapes, time_ns in zip(*columns, strict=True):
            if operator and _NUMBER.search(shapes):
                times = found[operator]
                times[shapes] = times.get(shapes, 0.0) + time_ns * factor
    return dict(found)


def _alone(own: Times, other: Times) -> float:
    """Return the time in shapes that the other side lacks."""
    return sum(time for shapes, time in own.items() if shapes not in other)


def _most_common_scaling(pairs: dict[str, tuple[Times, Times]]) -> tuple[Scaling | None, float]:
    """Return the factor that explains most of the base's time, and how much time it explains."""
    time_ns: defaultdict[float, float] = defaultdict(float)
    largest: dict[float, tuple[float, Scaling]] = {}
    for operator, (own, other) in pairs.items():
        for shapes, time in own.items():
            scaling = None if shapes in other else _scaling(operator, shapes, other)
            if scaling is None:
                continue
            time_ns[scaling.factor] += time
            if scaling.factor not in largest or time > largest[scaling.factor][0]:
                largest[scaling.factor] = (time, scaling)
    if not time_ns:
        return None, 0.0
    factor = max(time_ns, key=lambda each: time_ns[each])
    return largest[factor][1], time_ns[factor]


def _scaling(operator: str, shapes: str, others: Iterable[str]) -> Scaling | None:
    form, sizes = _form(shapes)
    for other in others:
        its_form, its_sizes = _form(other)
        if its_form != form:
            continue
        ratios = {b / a for a, b in zip(sizes, its_sizes, strict=True) if a and a != b}
        if len(ratios) == 1:
            return Scaling(ratios.pop(), operator, shapes, other)
    return None


@lru_cache(maxsize=1 << 14)
def _form(shapes: str) -> tuple[str, tuple[int, ...]]:
    """Return shapes without their numbers, and the numbers."""
    # Sizes of tensors have up to 19 digits; a hostile trace may have a number that takes long to convert.
    return _NUMBER.sub("#", shapes), tuple(int(number[:19]) for number in _NUMBER.findall(shapes))


def in_graphs(side: Side) -> tuple[float, float]:
    """Return the GPU time in CUDA graphs that were recorded as one event each, and all GPU time, per step."""
    graphs = total = 0.0
    for digest in side.digests:
        factor = side.per_step(digest)
        times = numbers(digest.kernels, "time_ns").tolist()
        for name, duration in zip(texts(digest.kernels, "name"), times, strict=True):
            total += duration * factor
            graphs += duration * factor if WHOLE_GRAPH.fullmatch(name) else 0.0
    return graphs, total


def hides_kernels(side: Side) -> bool:
    """Return whether such graphs take so much time that too little is known about the side's kernels."""
    graphs, total = in_graphs(side)
    return graphs > 0 and graphs >= HIDING_SHARE * total
