"""What a stopwatch says of a job before and after its fix."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Times:
    """Mean step of each stretch in seconds, of the slowest rank, by turns: a fix gives back time of all
    steps, and some faults are in every third one, or in one of thirty."""

    before: list[float]
    after: list[float]

    @property
    def gain(self) -> float:
        """Share of the step that the fix gives back."""
        return 1 - statistics.mean(self.after) / statistics.mean(self.before)

    @property
    def doubt(self) -> float:
        """How far the gain is off by chance: two standard errors of that of each turn."""
        gains = [1 - after / before for before, after in zip(self.before, self.after, strict=True)]
        return 2 * statistics.stdev(gains) / math.sqrt(len(gains))
