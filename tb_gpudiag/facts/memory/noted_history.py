"""How much memory Python's tensors held as the job went on, where NotingTensors has noted that: a recording
shows a few steps, and a full buffer, a list that is dropped now and then and a leak differ in the steps
before."""

from __future__ import annotations

from collections.abc import Sequence

_FEWEST_STEPS = 3
"""Over fewer steps, the batch at hand hides what is kept."""

_FEWEST_STRETCHES = 3
"""Two stretches may be alike by chance."""

_OFF_LINE = 1 / 5
"""What is kept at one rate is off a straight line by this share of its growth, or less. Of six losses, one in
each fifth step from the 4th to the 33rd, one is not there yet at some of these."""

_SLOWED = 0.6
"""What grows at less than this share of its earlier rate may just have become full. Of chunks that come every
eight steps, the twelve that are recorded have one or two, instead of one and a half."""

_EARLY_PART = 1 / 16
"""Part of the job's steps that is left out at its beginning: it loads and warms up then."""

History = Sequence[tuple[int, int]]
"""Steps in order, and the bytes then. Of Python's tensors, the last two are the recording's ends."""


def steady_rate(history: History) -> float:
    """Return by how many bytes per step memory has grown all along; 0 if it has not, or was not noted."""
    points = _apart(history)
    if not is_long(history):
        return 0.0
    rate = _rate(points[0], points[-1])
    slowed = _rate(*points[-2:]) < _SLOWED * _rate(points[0], points[-2])
    grown = points[-1][1] - points[0][1]
    off = max(abs(size - points[0][1] - rate * (step - points[0][0])) for step, size in points)
    return rate if rate > 0 and not slowed and off <= _OFF_LINE * grown else 0.0


def last_rate(history: History) -> float:
    """Return by how many bytes per step memory has grown in the recording; 0 where that was not noted."""
    return _rate(history[-2], history[-1]) if len(history) > 1 else 0.0


def is_long(history: History) -> bool:
    """Whether there are enough steps to tell whether growth is steady."""
    return len(_apart(history)) > _FEWEST_STRETCHES


def _apart(history: History) -> list[tuple[int, int]]:
    points = list[tuple[int, int]]()
    for step, size in history:
        late = step >= max(1, _EARLY_PART * history[-1][0])
        if late and (not points or step - points[-1][0] >= _FEWEST_STEPS):
            points.append((step, size))
    return points


def _rate(first: tuple[int, int], last: tuple[int, int]) -> float:
    return (last[1] - first[1]) / (last[0] - first[0])
