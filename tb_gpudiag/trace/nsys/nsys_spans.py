"""When threads were inside spans of one kind."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Bool, Int64


class Covered:
    """Times that spans cover, by thread. Spans of a thread are nested or follow one another."""

    def __init__(self) -> None:
        self._parts: list[tuple[Int64, Int64, Int64]] = []
        self._joined: tuple[Int64, Int64, Int64] | None = None

    def add(self, thread: Int64, start: Int64, end: Int64) -> None:
        """Add spans, shape (n,) each."""
        self._parts.append((thread, start, end))
        self._joined = None

    @property
    def threads(self) -> Int64:
        """Threads that have spans, each once."""
        return np.unique(np.concatenate([np.zeros(0, np.int64), *(thread for thread, _, _ in self._parts)]))

    def contains(self, thread: Int64, start: Int64, end: Int64) -> Bool:
        """Mask of the spans [start, end) that lie inside an added one of the same thread."""
        own, first, last = self._sorted()
        inside = np.zeros(len(thread), np.bool_)
        for each in np.unique(thread):
            left, right = np.searchsorted(own, [each, each + 1])
            if left == right:
                continue
            asked = np.flatnonzero(thread == each)
            at = np.searchsorted(first[left:right], start[asked], side="right") - 1
            # The longest reach of all spans that began by then: inner spans end before outer ones.
            reach = np.maximum.accumulate(last[left:right])
            inside[asked] = (at >= 0) & (end[asked] <= reach[np.maximum(at, 0)])
        return inside

    def _sorted(self) -> tuple[Int64, Int64, Int64]:
        if self._joined is None:
            empty = np.zeros(0, np.int64)
            thread, start, end = (
                np.concatenate([empty, *(part[i] for part in self._parts)]) for i in range(3)
            )
            order = np.lexsort((start, thread))
            self._joined = thread[order], start[order], end[order]
        return self._joined
