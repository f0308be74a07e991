"""Whether two sides do the same work (input shapes of the operators that both run, kernels in CUDA graphs),
and what of the memory at their peaks differs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from tb_gpudiag.digest.digest import Digest, MemoryPeaks, numbers, texts
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.compare.side import Side
from tb_gpudiag.jobs.ranks.rank_memory import held_at_peak, peak_of, rank_memory_of
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.vocabulary.kernel_names import WHOLE_GRAPH
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.wording.format import count, more_bytes, one_line, share, size_bytes
from tb_gpudiag.wording.good_recording import RECORD_HISTORY
from tb_gpudiag.wording.vocabulary import MEMORY_KINDS, term

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


MOST_ROWS: Final = 50

# Allocators round sizes: a peak that moves by less is the same.
SAME_WITHIN: Final = 0.01

# The sentence names kinds that are at least this share of the difference.
_NAMED_KIND: Final = 0.2


def is_of_memory(side: Side) -> bool:
    """Whether the side shows memory and no time: snapshots, or timelines of memory."""
    return all(digest.about.kind != "trace" for digest in side.digests)


def held_changes(base: Side, candidate: Side) -> list[pb.HeldDifference]:
    """Return the places whose memory at the peak differs, largest difference first. Of each side, the rank
    with the highest peak counts."""
    one, other = (held_at_peak(_fullest(side)) for side in (base, candidate))
    devices = {device for device, *_ in one}, {device for device, *_ in other}
    if len(devices[0]) == len(devices[1]) == 1:  # the two are compared, whatever their numbers
        (device,) = devices[0]
        other = {(device, kind, by, place): held for (_, kind, by, place), held in other.items()}
    found = [
        pb.HeldDifference(
            device=one_line(device),
            kind=kind,
            allocator=one_line(allocator),
            place=one_line(place),
            base_bytes=before[0],
            candidate_bytes=after[0],
            base_count=before[1],
            candidate_count=after[1],
        )
        for key in dict.fromkeys([*one, *other])
        for (device, kind, allocator, place) in [key]
        for before, after in [(one.get(key, (0, 0)), other.get(key, (0, 0)))]
        if before != after
    ]
    return sorted(found, key=lambda row: -abs(row.candidate_bytes - row.base_bytes))


def memory_sentence(base: Side, candidate: Side) -> str:
    """Say which side has the higher peak, of what, and whether an allocation failed on one side only."""
    one, other = (peak_of(_fullest(side)) for side in (base, candidate))
    sizes = [size_bytes(peak.peak_allocated_bytes) for peak in (one, other)]
    moved = other.peak_allocated_bytes - one.peak_allocated_bytes
    if abs(moved) <= SAME_WITHIN * one.peak_allocated_bytes:
        said = f"The peaks are the same within {share(SAME_WITHIN)}: {sizes[0]} and {sizes[1]}."
    else:
        said = f"The candidate allocates {more_bytes(moved)} at its peak: {sizes[1]} instead of {sizes[0]}."
        kinds: Counter[int] = Counter()
        for row in held_changes(base, candidate):
            if row.device in (one.device, other.device):
                kinds[row.kind] += int(row.candidate_bytes - row.base_bytes)
        named = [
            f"{more_bytes(size)} of {term(MEMORY_KINDS, pb.MemoryKind.Kind.Name(kind)).noun}"
            for kind, size in sorted(kinds.items(), key=lambda item: -abs(item[1]))
            if abs(size) >= _NAMED_KIND * abs(moved)
        ]
        if named:
            said += f" It has {', '.join(named)}."
    return f"{said}{_failure(one, other)}"


def memory_notes(base: Side, candidate: Side) -> list[str]:
    """Say which side does not show what held its memory."""
    peaks = rank_memory_of([_fullest(base), _fullest(candidate)])
    bare = [("base", "candidate")[at] for at in peaks.without_history.tolist()]
    return [
        f"The {name} has no history: nothing shows what held its memory. {RECORD_HISTORY}." for name in bare
    ]


def _failure(base: MemoryPeaks, candidate: MemoryPeaks) -> str:
    if bool(base.failures) == bool(candidate.failures):
        return " Allocations failed on both sides." if base.failures else ""
    failed, name, other = (
        (candidate, "candidate", "base") if candidate.failures else (base, "base", "candidate")
    )
    asked = f", the last one of {size_bytes(failed.failed_bytes)}" if failed.failed_bytes else ""
    return f" {count(failed.failures, 'allocation')} failed in the {name}{asked}, and none in the {other}."


def _fullest(side: Side) -> Digest:
    return max(side.digests, key=lambda digest: peak_of(digest).peak_allocated_bytes)
