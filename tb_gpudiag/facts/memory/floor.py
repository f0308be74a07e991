"""Floors of a memory curve: its lowest value in each step (without steps, in windows of time), and the trend
through them."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from tb_gpudiag.arrays import Bool, Float64, Int64
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.memory.curve import Curve
from tb_gpudiag.frozen import dataclass

MOST_FLOORS = 2_000
"""Most floors that a trend is computed from; of more steps, evenly spaced ones. Two million pairs are
quick."""

FEWEST_STEPS = 3
"""Without the first one, two floors remain; fewer have no slope."""

MOST_WINDOWS = 32
FEWEST_WINDOWS = 4

FEWEST_AT_A_RATE = 4
"""Floors on each side of a change of the rate: fewer have no confidence interval."""

MOST_CHANGE_FLOORS, MOST_CHANGES = 64, 24
"""Floors, evenly spaced, in which a change of the rate is looked for, and places at which it is tried."""

LINES_FIT = 0.2
"""Two lines with different slopes fit what grows by random amounts better than one, too: of 150 such curves,
some left less than a quarter of the residuals, and none this share. A true change leaves far less."""

FALLS = 2
"""A floor is meaningful only where the curve comes down to it: in each window it falls through the middle
between the window's extremes at least this often. The first window is exempt, because it is a warm-up like a
first step."""


@dataclass(frozen=True, eq=False)
class Periods:
    """Stretches of the recording with a floor each, in order and disjoint. Shape (k,) each.

    unit: "step" (recorded or inferred), or "second" (equal windows of time, without steps).
    inferred: from allocations that repeat (see repeats.py).
    trains: each step has a backward pass or an optimizer's step. If inferred steps have neither, what repeats
        may be a batch, an epoch or a token.
    """

    names: list[str]
    start_ns: Int64
    end_ns: Int64
    unit: str
    inferred: bool = False
    trains: bool = True

    @property
    def word(self) -> str:
        """What users call one of them: "step", "inferred step", "repetition", or "window"."""
        if self.unit != "step":
            return "window"
        return ("inferred step" if self.trains else "repetition") if self.inferred else "step"

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def of_steps(cls, steps: Steps) -> Periods:
        return cls(steps.names, steps.start_ns, steps.end_ns, "step")

    def after(self, time_ns: int) -> Periods:
        """Return the periods that begin at this time or later."""
        first = int(np.searchsorted(self.start_ns, time_ns))
        return replace(
            self, names=self.names[first:], start_ns=self.start_ns[first:], end_ns=self.end_ns[first:]
        )

    @property
    def at(self) -> Float64:
        """Place of each on the axis of slopes: its number, or its start in seconds. Shape (k,)."""
        if self.unit == "step":
            return np.arange(len(self), dtype=np.float64)
        return self.start_ns / 1e9


NO_PERIODS = Periods([], np.zeros(0, np.int64), np.zeros(0, np.int64), "second")


@dataclass(frozen=True, eq=False)
class Floors:
    """The curve's lowest value in each period. Shape (k,) each.

    position: position of the event after which it was lowest; -1 before the first event.
    at_ns: when it was lowest, not before the period's start.
    excused: the warm-up, which is not part of the trend. What the first step allocates to keep (optimizer
    state, gradients, caches, workspaces) is missing from its own floor and present in all later ones.
    """

    periods: Periods
    position: Int64
    at_ns: Int64
    bytes: Int64
    excused: Bool

    def __len__(self) -> int:
        return len(self.bytes)

    @cached_property
    def last_rate(self) -> int:
        """Index of the floor from which on memory grows at its last rate; 0 if the rate never changed."""
        chosen = evenly(np.flatnonzero(~self.excused), MOST_CHANGE_FLOORS)
        at = _change_of_rate(self.periods.at[chosen], self.bytes[chosen].astype(np.float64))
        return int(chosen[at]) if at else 0


@dataclass(frozen=True)
class Trend:
    """A line through the floors that are not excused, with the Theil-Sen slope: the median of the slopes
    between all pairs. If memory grew at another rate before, it goes through the floors of the last rate.

    low, high: its confidence interval by Sen's method (Sen 1968: ranks of the slopes, with the variance of
    Kendall's statistic, ties counted), at 95%; of fewer than four floors the extremes.
    earlier, later: slope within the first and the second half. A plateau has grown in the first half only.
    """

    per_unit: float
    low: float
    high: float
    steps: int
    unit: str
    word: str  # what users call the unit: see Periods.word
    start_ns: int
    start_bytes: float
    end_ns: int
    end_bytes: float
    earlier: float
    later: float


def floors(curve: Curve, periods: Periods) -> Floors:
    """Find the curve's lowest value in each period, the value at its start included."""
    first, last = (np.searchsorted(curve.time_ns, at) for at in (periods.start_ns, periods.end_ns))
    position = first.astype(np.int64) - 1
    lowest = curve.before(first)
    some = np.flatnonzero(last > first)
    if len(some):
        # Events between two periods belong to neither: every other range is dropped.
        edges = np.stack([first[some], last[some]], axis=1).reshape(-1)
        inner = np.minimum.reduceat(np.r_[curve.allocated, curve.allocated[-1:]], edges)[::2]
        lower = some[inner < lowest[some]]
        lowest[some] = np.minimum(lowest[some], inner)
        position[lower] = _first_equal(curve.allocated, first[lower], last[lower], lowest[lower])
    at = np.maximum(np.r_[periods.start_ns[:1], curve.time_ns][position + 1], periods.start_ns)
    excused = np.zeros(len(periods), np.bool_)
    excused[:1] = True
    return Floors(periods, position, at, lowest, excused)


def _first_equal(values: Int64, first: Int64, last: Int64, wanted: Int64) -> Int64:
    """Find the first position of the wanted value in each range first:last. Ranges are disjoint and in
    order."""
    owner = np.searchsorted(first, np.arange(len(values)), side="right") - 1
    safe = np.maximum(owner, 0)
    if not len(first):
        return first
    hits = np.flatnonzero((owner >= 0) & (np.arange(len(values)) < last[safe]) & (values == wanted[safe]))
    _, at = np.unique(owner[hits], return_index=True)
    return hits[at]


def windows(curve: Curve, begin_ns: int) -> Periods:
    """Divide the time since `begin_ns` into as many equal windows as possible (a power of two) of which each
    but the first has FALLS falls; return none if even FEWEST_WINDOWS do not."""
    count = MOST_WINDOWS
    first, last = max(begin_ns, int(curve.time_ns[0])), int(curve.time_ns[-1])
    while count >= FEWEST_WINDOWS and last > first:
        edge = first + np.arange(count + 1, dtype=np.int64) * (last - first) // count
        at = np.searchsorted(curve.time_ns, edge)
        if all(_falls(curve, int(a), int(b)) >= FALLS for a, b in pairwise(at[1:])):
            names = [f"window {i + 1}" for i in range(count)]
            return Periods(names, edge[:-1], edge[1:], "second")
        count //= 2
    return NO_PERIODS


def _falls(curve: Curve, first: int, last: int) -> int:
    """Count how often the curve falls through the middle between its extremes in the range first:last."""
    values = curve.allocated[first:last]
    if len(values) < 2 * FALLS:
        return 0
    low, high = int(values.min()), int(values.max())
    above = 2 * values > low + high
    return int((above[:-1] & ~above[1:]).sum()) if high > low else 0


def trend(found: Floors) -> Trend | None:
    """Compute the trend; None with fewer than FEWEST_STEPS floors."""
    if len(found) < FEWEST_STEPS:
        return None
    every = np.flatnonzero(~found.excused)
    used = evenly(every[every >= found.last_rate], MOST_FLOORS)
    x, y = found.periods.at[used], found.bytes[used].astype(np.float64)
    slope, low, high = theil_sen(x, y)
    base = float(np.median(y - slope * x))
    return Trend(
        per_unit=slope,
        low=low,
        high=high,
        steps=len(used),
        unit=found.periods.unit,
        word=found.periods.word,
        start_ns=int(found.at_ns[used[0]]),
        start_bytes=base + slope * float(x[0]),
        end_ns=int(found.at_ns[used[-1]]),
        end_bytes=base + slope * float(x[-1]),
        earlier=earlier_slope(x, y),
        later=later_slope(x, y),
    )


def _change_of_rate(x: Float64, y: Float64) -> int:
    """Return the index from which on a growing value grows at another rate, up to the end; 0 without one."""
    if len(x) < 2 * FEWEST_AT_A_RATE:
        return 0
    best, least = 0, LINES_FIT * _residual(x, y, theil_sen(x, y)[0])
    for at in evenly(np.arange(FEWEST_AT_A_RATE, len(x) - FEWEST_AT_A_RATE + 1), MOST_CHANGES).tolist():
        before, after = theil_sen(x[:at], y[:at]), theil_sen(x[at:], y[at:])
        apart = before[2] < after[1] or after[2] < before[1]
        left = _residual(x[:at], y[:at], before[0]) + _residual(x[at:], y[at:], after[0])
        if apart and min(before[1], after[1]) > 0 and left < least:
            best, least = at, left
    return best


def _residual(x: Float64, y: Float64, slope: float) -> float:
    """How far the values are from a line with this slope, summed."""
    rest = y - slope * x
    return float(np.abs(rest - np.median(rest)).sum())


def evenly(items: Int64, most: int) -> Int64:
    """Return at most `most` of the items, evenly spaced, the first and the last one included."""
    if len(items) <= most:
        return items
    return items[np.linspace(0, len(items) - 1, most).round().astype(np.int64)]


_NORMAL_975 = 1.959963984540054
_FEWEST_FOR_95 = 4


def theil_sen(x: Float64, y: Float64) -> tuple[float, float, float]:
    """Compute (slope, low, high) of two points or more; x ascends strictly.

    The interval is that of scipy.stats.theilslopes at 95%; of fewer than four points the extremes.
    """
    count = len(x)
    i, j = np.triu_indices(count, 1)
    slopes = (y[j] - y[i]) / (x[j] - x[i])
    slopes.sort()
    median = float(np.median(slopes))
    if count < _FEWEST_FOR_95:
        return median, float(slopes[0]), float(slopes[-1])
    _, ties = np.unique(y, return_counts=True)
    variance = (count * (count - 1) * (2 * count + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()) / 18
    reach = _NORMAL_975 * float(np.sqrt(variance))
    upper = min(round((len(slopes) + reach) / 2), len(slopes) - 1)
    lower = max(round((len(slopes) - reach) / 2) - 1, 0)
    return median, float(slopes[lower]), float(slopes[upper])


def earlier_slope(x: Float64, y: Float64) -> float:
    """Return the slope within the first half of the points; of fewer than three, of all."""
    half = (len(x) + 1) // 2
    return theil_sen(x[:half], y[:half])[0] if half > 1 else theil_sen(x, y)[0]


def later_slope(x: Float64, y: Float64) -> float:
    """Return the slope within the second half of the points; of fewer than three, of all."""
    half = (len(x) + 1) // 2
    return theil_sen(x[-half:], y[-half:])[0] if half > 1 else theil_sen(x, y)[0]
