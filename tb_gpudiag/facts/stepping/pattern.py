"""How step times vary: single slow steps, every k-th step, a change of level, or a trend."""

from __future__ import annotations

from enum import Enum

import numpy as np

from tb_gpudiag.arrays import Bool, Float64, Int64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import levels

# Steady steps of public traces are within 6% of their median, uneven ones 20 to 35% above it.
SLOW_RATIO = 1.2

# A change of level has at least two steps on each side, and of so few steps none may be out of place.
FEWEST_FOR_A_CHANGE = 5
FEWEST_PER_LEVEL = 2

# Three slow steps at equal distances are a repetition: two always have a distance.
FEWEST_REPEATS = 3

# Few loaders have more workers. Every period has as many phases to try as it is long.
LONGEST_PERIOD = 64

# Rank correlation of step number and length. Of eight steps in random order, 2 in 100 have as much.
LEAST_RANK_CORRELATION = 0.85
FEWEST_FOR_A_TREND = 8

# Share of steps that may be slow or fast out of turn: jobs also have stray slow steps.
MOST_OUT_OF_PLACE = levels.SIZEABLE


class Shape(Enum):
    """How the slow steps are spread over the recording."""

    SINGLE = "single"
    PERIODIC = "periodic"
    SLOWER = "slower"  # from some step on
    FASTER = "faster"  # from some step on
    RISING = "rising"
    FALLING = "falling"


@dataclass(frozen=True, eq=False)
class Pattern:
    """Slow steps and the others, as ascending indices of all steps.

    period: the distance of the slow steps; 0 unless they are periodic."""

    shape: Shape
    slow: Int64
    others: Int64
    period: int = 0


def find_pattern(length_ns: Int64, first: int) -> Pattern | None:
    """Tell how the steps from `first` differ in length, shape (k,); None if they are even.

    The first step of the recording can contain earlier work. It is left out, unless it fits into a change of
    level or a trend.
    """
    steady = np.arange(max(1, first), len(length_ns))
    if not len(steady) or np.median(length_ns[steady]) <= 0:
        return None
    return (
        _periodic(length_ns, steady)
        or _change(length_ns, np.arange(first, len(length_ns)))
        or _change(length_ns, steady)
        or _single(length_ns, steady)
    )


def _single(length_ns: Int64, steps: Int64) -> Pattern | None:
    slow = length_ns[steps] > SLOW_RATIO * np.median(length_ns[steps])
    return Pattern(Shape.SINGLE, steps[slow], steps[~slow]) if slow.any() else None


def _periodic(length_ns: Int64, steps: Int64) -> Pattern | None:
    """Find the shortest period at which steps are slow, and no others."""
    # Half of the slow steps or more are that slow, and at least half of all steps are not slow.
    if (length_ns[steps] >= SLOW_RATIO * np.quantile(length_ns[steps], 0.25)).sum() < FEWEST_REPEATS / 2:
        return None
    for period in range(2, min(len(steps) // FEWEST_REPEATS, LONGEST_PERIOD) + 1):
        for phase in range(period):
            slow = np.zeros(len(steps), np.bool_)
            slow[phase::period] = True
            if slow.sum() >= FEWEST_REPEATS and _apart(length_ns[steps], slow):
                return Pattern(Shape.PERIODIC, steps[slow], steps[~slow], period=period)
    return None


def _change(length_ns: Int64, steps: Int64) -> Pattern | None:
    """Find a change of level or a trend, whichever fits better."""
    if len(steps) < FEWEST_FOR_A_CHANGE or length_ns[steps].min() <= 0:
        return None
    length = np.log(length_ns[steps])  # so that one very slow step is not all that counts
    split = _best_split(length)
    after = np.arange(len(steps)) >= split
    levels = np.where(after, np.median(length[after]), np.median(length[~after]))
    slow, line_shape, level_shape = ~after, Shape.FALLING, Shape.FASTER
    half = np.arange(len(steps)) < len(steps) // 2
    if np.median(length[after]) > np.median(length[~after]):
        slow, half, line_shape, level_shape = after, ~half, Shape.RISING, Shape.SLOWER
    at = np.arange(len(length), dtype=np.float64)
    line = np.polyval(np.polyfit(at, length, 1), at)
    if _trend(length) and np.abs(length - line).sum() < np.abs(length - levels).sum():
        return Pattern(line_shape, steps[half], steps[~half])
    if not _apart(length_ns[steps], slow):
        return None
    return Pattern(level_shape, steps[slow], steps[~slow])


def _apart(length_ns: Int64, slow: Bool) -> bool:
    """Return whether these steps are slow and all others are not, but for a few."""
    high, low = float(np.median(length_ns[slow])), float(np.median(length_ns[~slow]))
    between = np.sqrt(high) * np.sqrt(max(low, 0.0))
    out_of_place = int(((length_ns > between) != slow).sum())
    return high >= SLOW_RATIO * low and out_of_place <= MOST_OUT_OF_PLACE * len(length_ns)


def _best_split(length: Float64) -> int:
    """Return where two levels leave the least variance."""
    total = np.cumsum(length)
    split = np.arange(FEWEST_PER_LEVEL, len(length) - FEWEST_PER_LEVEL + 1)
    before, after = total[split - 1] / split, (total[-1] - total[split - 1]) / (len(length) - split)
    between = split * (len(length) - split) * (after - before) ** 2
    return int(split[np.argmax(between)])


def _trend(length: Float64) -> bool:
    """Return whether log lengths rise or fall throughout, and by enough."""
    if len(length) < FEWEST_FOR_A_TREND:
        return False
    third = len(length) // 3
    # Between the middles of the first and the last third are two thirds of the recording.
    rise = abs(np.median(length[-third:]) - np.median(length[:third])) * 1.5
    rank = np.argsort(np.argsort(length, kind="stable"), kind="stable")
    correlation = abs(np.corrcoef(rank, np.arange(len(length)))[0, 1])
    return bool(rise >= np.log(SLOW_RATIO) and correlation >= LEAST_RANK_CORRELATION)
