"""Repetition in a sequence of numbers: which stretch of it recurs. Pure: no trace."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import Bool, Float64, Int32, Int64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import levels

Numbers = Int32

FEWEST = 3
"""Fewest repetitions. Two of anything can be chance."""

_IN_A_ROW = 2
"""Repetitions that must follow each other exactly alike somewhere, to determine the period."""

MOST_SHARE = levels.HALF
"""Share of the sequence that the repetitions must cover. Below that, the sequence is mostly something
else."""

NEARLY = 0.9
"""Share of a stretch's elements that must agree, once exact repetitions are known: a step with another
algorithm for a kernel or two is still a step."""

NEARLY_ALL = 0.9
"""Share of what a longer period covers: an inner repetition that covers this much misses next to nothing."""

_GRAM = 8
"""Elements that are compared together: single ones recur everywhere, long stretches miss short periods."""

_MOST_CANDIDATES = 32
"""Most periods that are tried: a bound on the work for sequences that repeat in many ways."""

_MOST_COMPARED = 8
"""Most comparisons, as a multiple of the sequence's length: a bound on the work as well."""

_COMPARED_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class Repetition:
    """Equal stretches [start, start + period) of the sequence, in order and disjoint. start: shape (k,).

    They need not touch: elements between two of them are not part of the repetition.
    """

    period: int
    start: Int64

    def __len__(self) -> int:
        return len(self.start)

    @property
    def members(self) -> Int64:
        """Indices of the elements of each, shape (k, period)."""
        return self.start[:, None] + np.arange(self.period)


@dataclass(frozen=True, eq=False)
class _Period:
    """A period, and the stretches that repeat exactly at this distance, each at least _IN_A_ROW times."""

    length: int
    start: Int64
    end: Int64
    covered: int

    @property
    def count(self) -> int:
        return int(((self.end - self.start) // self.length).sum())


def find_repetition(sequence: Int64, whole: Bool, pause: Int64) -> Repetition | None:
    """Find the repetition that most of the sequence consists of; None if nothing repeats clearly.

    sequence: any numbers, shape (n,).
    whole: elements that only a whole repetition contains, if any, shape (n,). A shorter period that contains
    one is not taken for a part of a longer one.
    pause: how well a cut before the element fits, where the sequence leaves the choice, shape (n,).
    """
    _, kinds = np.unique(sequence, return_inverse=True)
    numbers: Numbers = kinds.astype(np.int32)
    periods = [
        period
        for length in _candidates(numbers)
        if (period := _exact(numbers, length)).covered >= MOST_SHARE * len(numbers) and period.count >= FEWEST
    ]
    if not periods:
        return None
    chosen = _outermost(sorted(periods, key=lambda p: p.length), whole)
    longest = int(np.argmax(chosen.end - chosen.start))
    return _all_like(numbers, chosen.length, _cut(chosen, longest, pause))


def _candidates(numbers: Numbers) -> list[int]:
    """Return the distances at which stretches of _GRAM elements recur, those that could cover most first."""
    count = len(numbers) - _GRAM + 1
    if count < FEWEST:
        return []
    grams = _grams(numbers)
    order = np.argsort(grams, kind="stable")
    again = grams[order][1:] == grams[order][:-1]
    distance = (order[1:] - order[:-1])[again]
    often = np.bincount(distance, minlength=3)
    # One recurring element is not a sequence, and a period must fit in FEWEST times.
    often[:2] = 0
    often[len(numbers) // FEWEST + 1 :] = 0
    weight = often * np.arange(len(often))
    best = np.argsort(-weight, kind="stable")[:_MOST_CANDIDATES]
    return [int(length) for length in best if often[length] >= FEWEST]


def _grams(numbers: Numbers) -> npt.NDArray[np.uint64]:
    """Hash each stretch of _GRAM elements: a polynomial over random values, modulo 2**64. A collision only
    adds a candidate that fails the exact test."""
    count = len(numbers) - _GRAM + 1
    values = np.random.default_rng(0).integers(1, 2**63, int(numbers.max()) + 1, dtype=np.uint64)[numbers]
    grams = np.zeros(count, np.uint64)
    for i in range(_GRAM):
        grams = grams * np.uint64(0x9E3779B97F4A7C15) + values[i : i + count]
    return grams


def _exact(numbers: Numbers, length: int) -> _Period:
    same = numbers[length:] == numbers[:-length]
    edges = np.flatnonzero(np.diff(np.r_[False, same, False].astype(np.int8)))
    start, end = edges[::2], edges[1::2]
    keep = end - start >= (_IN_A_ROW - 1) * length
    start, end = start[keep], end[keep] + length
    # The end of one stretch and the beginning of the next can overlap.
    covered = int((end - np.maximum(start, np.r_[0, end][: len(end)])).sum())
    return _Period(length, start.astype(np.int64), end.astype(np.int64), covered)


def _outermost(periods: list[_Period], whole: Bool) -> _Period:
    """Choose the outermost of nested repetitions: the step and not its layers.

    A longer period is the outer one if the shorter one breaks off in each of its repetitions: layers end
    where the head of the model comes. If the shorter one breaks off seldom, the longer one is a multiple of
    it. And if the shorter one is complete in itself and misses next to nothing, something that happens once
    in many repetitions (a log line, a checkpoint) does not merge them into one.
    """
    chosen = periods[0]
    for longer in periods[1:]:
        alone = bool(whole[chosen.start[0] : chosen.start[0] + chosen.length].any())
        if alone and chosen.covered >= NEARLY_ALL * longer.covered:
            continue
        inside = np.searchsorted(longer.end, chosen.start, side="right")
        inner = (inside < len(longer.start)) & (
            chosen.start >= longer.start[np.minimum(inside, len(longer.start) - 1)] - chosen.length
        )
        if int(inner.sum()) >= longer.count - 1:
            chosen = longer
    return chosen


def _cut(period: _Period, run: int, pause: Int64) -> int:
    """Return where the first repetition of the run begins: of the cuts that lose no repetition, the one after
    the longest pause."""
    start, length = int(period.start[run]), period.length
    count, spare = divmod(int(period.end[run]) - start, length)
    at = start + np.arange(count)[:, None] * length + np.arange(spare + 1)
    return start + int(np.argmax(np.median(pause[np.minimum(at, len(pause) - 1)], axis=0)))


def _all_like(numbers: Numbers, period: int, first: int) -> Repetition | None:
    """Find all stretches like the one at `first`: the exact ones, and nearly exact ones next to or between
    them."""
    pattern = numbers[first : first + period]
    _, kinds, often = np.unique(_grams(numbers), return_inverse=True, return_counts=True)
    own = kinds[first : first + max(1, period - _GRAM + 1)]  # those that do not reach into what follows
    if not len(own):  # it begins with the sequence's last elements
        return None
    rarest = int(np.argmin(often[own]))
    at = np.flatnonzero(kinds == own[rarest]).astype(np.int64) - rarest
    if len(at) * period > _MOST_COMPARED * len(numbers):
        return None
    at, share = _likeness(numbers, pattern, at)
    start = _apart(at[share == 1], period)
    near = np.unique(np.r_[at, start - period, start + period])
    while len(near):
        near = near[np.searchsorted(start, near - period, "right") == np.searchsorted(start, near + period)]
        near, share = _likeness(numbers, pattern, near)
        more = _apart(near[share >= NEARLY], period)
        start = np.sort(np.r_[start, more])
        near = np.unique(np.r_[more - period, more + period])
    if len(start) < FEWEST or len(start) * period < MOST_SHARE * len(numbers):
        return None
    return Repetition(period, start)


def _likeness(numbers: Numbers, pattern: Numbers, at: Int64) -> tuple[Int64, Float64]:
    """Compare the pattern with the places where it fits in: (place, share of its elements that agree)."""
    length = len(pattern)
    at = at[(at >= 0) & (at + length <= len(numbers))]
    share = np.empty(len(at))
    rows = max(1, _COMPARED_AT_ONCE // length)
    for low in range(0, len(at), rows):
        some = at[low : low + rows, None] + np.arange(length)
        share[low : low + rows] = (numbers[some] == pattern).mean(axis=1)
    return at, share


def _apart(start: Int64, length: int) -> Int64:
    """From sorted starts, those at least a length after the one kept before."""
    if (np.diff(start) >= length).all():
        return start
    kept = [int(start[0])]
    while (at := int(np.searchsorted(start, kept[-1] + length))) < len(start):
        kept.append(int(start[at]))
    return np.array(kept, np.int64)
