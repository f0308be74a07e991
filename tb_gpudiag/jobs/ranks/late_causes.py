"""Why a rank was the last to arrive: what it did before, compared with what the others did."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.operations import RankOperations
from tb_gpudiag.jobs.ranks.waits import Waits

# How many operations to look back for the cause of a late arrival.
_BACK: Final = (1, 2, 3, 5, 8, 13)

# A part that explains less of the lateness than this is not its cause.
_LEAST_EXPLAINED: Final = 0.4


@dataclass(frozen=True)
class LateCause:
    """Why a rank was late.

    part: computing, copying or a cause of idle time; "" if no part explains the lateness. place: where the
    rank's host was most of the idle time, or "". waited_for: the earlier collective (index in Waits) in which
    the rank waited more than the others, so that its lateness began there; NONE without one.
    """

    part: str
    time_ns: int
    place: str
    waited_for: int = NONE


class LateCauses:
    """Finds the causes of single collectives."""

    def __init__(self, operations: RankOperations, waits: Waits) -> None:
        self._operations, self._waits = operations, waits
        self._of = np.full(len(operations), NONE, np.int64)
        self._of[waits.row] = waits.collective
        self._waiting = np.zeros(len(operations), np.int64)
        self._waiting[waits.row] = waits.waiting_ns
        self._own = operations.own_parts
        zero = np.zeros((1, operations.parts.shape[1]), np.int64)
        self._before = np.concatenate([zero, np.cumsum(operations.parts, axis=0)])
        self._found: dict[int, LateCause] = {}

    def cause(self, collective: int) -> LateCause:
        """Compare the last rank with the median of the others, over the number of operations that explains
        the lateness best."""
        if collective not in self._found:
            self._found[collective] = self._cause(collective)
        return self._found[collective]

    def _cause(self, collective: int) -> LateCause:
        waits, operations = self._waits, self._operations
        begin, end = int(waits.bounds[collective]), int(waits.bounds[collective + 1])
        rows = waits.row[begin:end]
        late_ns = int(waits.last_ns[collective] - waits.middle_ns[collective])
        if late_ns <= 0:
            return LateCause("", 0, "")
        best: tuple[int, Int64, int] | None = None
        for back in _BACK:
            firsts = rows - back + 1
            if firsts.min() < 0 or (operations.member[firsts] != operations.member[rows]).any():
                break
            spent = self._before[rows + 1] - self._before[firsts]
            more = np.where(self._own, spent[-1] - np.median(spent[:-1], axis=0), 0).astype(np.int64)
            miss = abs(int(more.sum()) - late_ns)
            if best is None or miss < best[0]:
                best = (miss, more, back)
        if best is None:
            return LateCause("", 0, "")
        _, more, back = best
        part = int(more.argmax())
        if more[part] < _LEAST_EXPLAINED * late_ns:
            return LateCause("", 0, "", self._waited_for(int(rows[-1]), rows[:-1], late_ns))
        row = int(rows[-1])
        stretch = np.arange(row - back + 1, row + 1)
        place = stretch[operations.place_ns[stretch].argmax()]
        is_idle = part > 2
        return LateCause(
            operations.part_names[part], int(more[part]), operations.place[int(place)] if is_idle else ""
        )

    def _waited_for(self, row: int, others: Int64, late_ns: int) -> int:
        """Return the rank's previous collective if the rank waited longer there than the others did in
        theirs."""
        before = row - 1
        if before < 0 or self._operations.member[before] != self._operations.member[row]:
            return NONE
        usual = float(np.median(self._waiting[np.maximum(0, others - 1)])) if len(others) else 0.0
        return int(self._of[before]) if self._waiting[before] - usual >= _LEAST_EXPLAINED * late_ns else NONE

    def chain(self, collective: int, most: int = 8) -> list[int]:
        """Return the collectives from this one back to where the lateness began."""
        found = [collective]
        while len(found) < most:
            before = self.cause(found[-1]).waited_for
            if before == NONE or before in found:
                break
            found.append(before)
        return found
