"""Finds when the steps of one rank get slower than they were: suddenly, or little by little."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_gpudiag.arrays import Float64
from tb_gpudiag.jobs.history.change_points import change_points

# Blocks of long steps have so many.
BLOCK_STEPS: Final = 16

WINDOW: Final = 24
"""Blocks that are compared, the newest ones with the first half."""

RECENT: Final = 5
"""The newest blocks. Their median stands two that have a checkpoint or an evaluation in them."""

# A block of a level is the median of four of the level below. With blocks of 10 s, windows are 4 minutes, 16,
# 64: a machine whose steps vary by 3% in the course of a day changes by less than 1% in an hour.
LEVELS: Final = 3
MERGED: Final = 4

LEAST_SHARE: Final = 0.03
"""Steps that are slower by less are not worth a recording."""

# Where steps drift again and again, that is how this job is: each drift of the last day adds LEAST_SHARE.
DAY_BLOCKS: Final = 8_640

# The median of five blocks differs from that of twelve by 0.65 standard deviations of a block. So this is
# five times that: by chance, once in a million looks.
LEAST_NOISE: Final = 3.25

HELD_LOOKS: Final = 12
"""What does not begin at once is a drift if it holds for so many blocks."""

GROWN_SHARE: Final = 0.1
"""Growth that is too slow for a window: steps take this much longer than in the run's fastest minutes."""

GROWN_LEVEL: Final = 1
GROWN_BLOCKS: Final = 10

STEP, TOTAL, FIRST_PHASE = 0, 1, 2
"""Columns of rows and blocks: number of the step, ms of the step, and of each phase."""


@dataclass(frozen=True)
class StepDrift:
    """Steps take longer than before.

    since: the first step of the block with which it began; if gradual, of those that it is compared with.
    before, after: medians of blocks, in ms: the step and its phases.
    """

    since: int
    gradual: bool
    before: Float64
    after: Float64

    @property
    def longer_ms(self) -> Float64:
        """By how much, shape (1 + phases,)."""
        return self.after - self.before


class StepDrifts:
    """Takes steps, and keeps means of blocks of them: a few thousand numbers, however long the run.
    block_s: how long the steps of a block take at least."""

    def __init__(self, block_s: float) -> None:
        self._block_s = block_s
        self._rows: list[Float64] = []
        self._sum_s = 0.0
        self._found: deque[int] = deque()  # blocks with which drifts were found
        self.recent: deque[Float64] = deque(maxlen=RECENT)
        """The newest blocks, shape (2 + phases,)."""
        self.blocks = 0
        self._start()

    def _start(self) -> None:
        self._levels: list[deque[Float64]] = [deque(maxlen=WINDOW) for _ in range(LEVELS)]
        self._unmerged: list[list[Float64]] = [[] for _ in range(LEVELS)]
        self._held = [0] * LEVELS
        self._fastest: Float64 | None = None

    def add(self, rows: Float64) -> StepDrift | None:
        """Add steps, shape (n, 2 + phases), in order. Return the last drift that shows with them.

        After a drift, steps are compared with those after it.
        """
        found = None
        for row in rows:
            self._rows.append(row)
            self._sum_s += row[TOTAL] / 1e3
            if self._sum_s >= self._block_s and len(self._rows) >= BLOCK_STEPS:
                block = np.mean(self._rows, axis=0)
                block[STEP] = self._rows[0][STEP]
                self._rows, self._sum_s = [], 0.0
                found = self._add_block(block) or found
        return found

    def _add_block(self, block: Float64) -> StepDrift | None:
        self.recent.append(block)
        self.blocks += 1
        while self._found and self.blocks - self._found[0] > DAY_BLOCKS:
            self._found.popleft()
        for level in self._push(block):
            drift = self._drift_in(level) or (self._grown() if level == GROWN_LEVEL else None)
            if drift is not None:
                self._found.append(self.blocks)
                self._start()
                return drift
        return None

    def _push(self, block: Float64) -> Iterator[int]:
        """Add a block to the levels. Yield those that got one."""
        for level, (blocks, unmerged) in enumerate(zip(self._levels, self._unmerged, strict=True)):
            blocks.append(block)
            yield level
            unmerged.append(block)
            if len(unmerged) < MERGED:
                return
            first = unmerged[0][STEP]
            block = np.median(unmerged, axis=0)
            block[STEP] = first
            unmerged.clear()

    def _drift_in(self, level: int) -> StepDrift | None:
        """Compare the newest blocks of a level with the first half of them."""
        if len(self._levels[level]) < WINDOW:
            return None
        blocks = np.array(self._levels[level])
        before, after = np.median(blocks[: WINDOW // 2], axis=0), np.median(blocks[-RECENT:], axis=0)
        share = LEAST_SHARE * (1 + len(self._found))
        least = max(share * before[TOTAL], LEAST_NOISE * _noise(blocks[:, TOTAL]))
        if after[TOTAL] - before[TOTAL] < least:
            self._held[level] = 0
            return None
        self._held[level] += 1
        if self._held[level] < HELD_LOOKS:
            return _sudden(blocks, least)
        return StepDrift(int(blocks[0][STEP]), True, before[TOTAL:], after[TOTAL:])

    def _grown(self) -> StepDrift | None:
        """Compare the newest blocks with the fastest ones of the run."""
        newest = list(self._levels[GROWN_LEVEL])[-GROWN_BLOCKS:]
        if len(newest) < GROWN_BLOCKS:
            return None
        now = np.median(newest, axis=0)
        if self._fastest is None or now[TOTAL] < self._fastest[TOTAL]:
            self._fastest = now
        fastest = self._fastest
        if now[TOTAL] < (1 + GROWN_SHARE * (1 + len(self._found))) * fastest[TOTAL]:
            return None
        return StepDrift(int(fastest[STEP]), True, fastest[TOTAL:], now[TOTAL:])


def _sudden(blocks: Float64, least: float) -> StepDrift | None:
    """Return the drift that began with one of these blocks; None if it began little by little."""
    for place in change_points(blocks[:, TOTAL], least):
        before, after = np.median(blocks[:place], axis=0), np.median(blocks[place:], axis=0)
        if after[TOTAL] > before[TOTAL] and len(blocks) - place >= RECENT:
            return StepDrift(int(blocks[place][STEP]), False, before[TOTAL:], after[TOTAL:])
    return None


def _noise(values: Float64) -> float:
    """Return the standard deviation from one block to the next, which a trend does not widen."""
    differences = np.diff(values)
    return 1.4826 * float(np.median(np.abs(differences - np.median(differences)))) / float(np.sqrt(2))
