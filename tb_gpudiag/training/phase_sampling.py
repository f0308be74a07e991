"""Chooses the steps whose phases are timed, so that timing them costs next to nothing."""

from __future__ import annotations

from statistics import median
from typing import Final

SHARE: Final = 0.001
"""Timing phases takes at most this share of the time of steps. A block of ten seconds of steps of 1 to 50 ms
has 60 and more timed ones."""

# Each so many steps. What loops do now and then, they do every 2, 8, 10 or 100 steps, which have no common
# factor with these: all such steps have their turn.
STRIDES: Final = (1, 3, 7, 17, 37, 79, 157)

# Of the first steps some are slow. After so many timed ones, the stride is chosen, again and again.
LOOK_EVERY: Final = 16

# What the clock sees of its own work is the inside of its hooks. With calling them, and the slower way that
# torch takes through a module with hooks, steps of 1 ms took 73 µs longer where hooks measured 16 to 38.
AROUND: Final = 3.0


class PhaseSampling:
    """Takes what timing the phases of steps costs, and how long these steps take."""

    def __init__(self) -> None:
        self.stride = 1
        self._own_ns: list[int] = []
        self._step_ns: list[int] = []

    def untimed(self, step: int) -> int:
        """Return how many steps from this one on have no phases: the same on all ranks, if they are alike."""
        return -step % self.stride

    def add(self, own_ns: int, step_ns: int) -> None:
        """Add a timed step. own_ns: spent in our hooks."""
        self._own_ns.append(own_ns)
        self._step_ns.append(step_ns)
        if len(self._own_ns) == LOOK_EVERY:
            share = AROUND * median(self._own_ns) / max(median(self._step_ns), 1)
            self.stride = next((stride for stride in STRIDES if share <= SHARE * stride), STRIDES[-1])
            self._own_ns.clear()
            self._step_ns.clear()
