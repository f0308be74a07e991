"""Decides from what each rank says of its steps which ranks are to record, and why."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Final

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.report.building.clock_words import most_of, ms_text, why_longer
from tb_gpudiag.trace.step_clocks.clock_state import COMPARED_BLOCKS, RankSteps
from tb_gpudiag.vocabulary.clock_phases import WAIT

LATE_SHARE: Final = 0.1
"""A rank is late if its own part of a step, without waiting, is longer than that of the median rank by this
share of a step. Ranks of healthy jobs on one busy machine differ by less for long."""

LATE_BLOCKS: Final = 4
"""For so many blocks in a row: chance, a checkpoint or an evaluation makes a rank late once."""

# Beside other processes, the same work takes more time even while it has a core: caches are shared, and cores
# have two threads.
BUSY_SHARE: Final = 0.25

# A rank that only waits longer has no reason of its own. What the other ranks have not found within a window
# of blocks, they find no more.
PATIENT_LOOKS: Final = COMPARED_BLOCKS

MOST_A_DAY: Final = 4
"""Recordings of a clock. Each slows a few steps down, and takes some megabytes."""

AFTER_S: Final = 600.0
"""After one, what other ranks say is likely to be about the same thing, unless it costs much more."""

# A busy machine that slowed steps a little must not hide what comes after it.
MUCH_MORE: Final = 2.0

_DAY_S: Final = 86_400.0


@dataclass(frozen=True)
class RecordingOrder:
    """These ranks record. since: the step at which it began. longer_ms: what it costs a step."""

    ranks: Sequence[int]
    why: str
    since: int
    longer_ms: float


class RankWatch:
    """Looks at all ranks again and again."""

    def __init__(self) -> None:
        self._heard: dict[int, int] = {}  # drifts by rank that are settled
        self._looks = 0  # since the first drift that is not
        self._times = self._block = 0  # blocks in a row for which a rank is late, and the last of them
        self._latest: RankSteps  # as it was with the first of them
        self._known_ms: dict[int, float] = {}  # lateness of ranks that were named
        self._orders: deque[tuple[float, RecordingOrder]] = deque(maxlen=MOST_A_DAY)

    def look(self, ranks: Sequence[RankSteps], now_s: float) -> RecordingOrder | None:
        """Return what is to be recorded now. ranks: at least this one; those that were heard of lately."""
        order = self._late(ranks) or self._drifted(ranks)
        if order is None:
            return None
        self._settle(ranks)
        if self._orders:
            last_s, last = self._orders[-1]
            if now_s - last_s < AFTER_S and order.longer_ms < MUCH_MORE * last.longer_ms:
                return None
            if len(self._orders) == MOST_A_DAY and now_s - self._orders[0][0] < _DAY_S:
                return None
        self._orders.append((now_s, order))
        return order

    def _settle(self, ranks: Sequence[RankSteps]) -> None:
        self._heard = {rank.rank: rank.drifts for rank in ranks}
        self._looks = 0

    def _late(self, ranks: Sequence[RankSteps]) -> RecordingOrder | None:
        """Return an order if one rank is late for long enough."""
        late = _Lateness.among(ranks)
        least_ms = late.least_ms + self._known_ms.get(late.rank.rank, 0.0) if late is not None else 0.0
        if late is None or late.sure_ms < least_ms or late.is_of_others:
            self._times = 0
            return None
        if not self._times or self._latest.rank != late.rank.rank:
            self._times, self._latest, self._block = 1, late.rank, late.rank.blocks
        elif late.rank.blocks > self._block:
            self._times, self._block = self._times + 1, late.rank.blocks
        return self._named(late, self._latest.step, ranks) if self._times >= LATE_BLOCKS else None

    def _named(self, late: _Lateness, since: int, ranks: Sequence[RankSteps]) -> RecordingOrder:
        self._times = 0
        self._known_ms[late.rank.rank] = late.sure_ms
        why = (
            f"rank {late.rank.rank} of {len(ranks)} is late since about step {since}: its part of a step "
            f"takes {ms_text(late.ms)} longer than that of the others{most_of(late.ms, late.of_phases_ms)}"
        )
        return RecordingOrder(_with_an_ordinary_one(late.rank, ranks), why, since, late.ms)

    def _drifted(self, ranks: Sequence[RankSteps]) -> RecordingOrder | None:
        """Return an order if the steps of a rank take longer, and no other process is to blame."""
        new = [rank for rank in ranks if rank.drifts > self._heard.get(rank.rank, 0)]
        if not new:
            return None
        self._looks += 1
        slowest = max(new, key=lambda rank: (not rank.only_waits, rank.own_longer_ms))
        longer_ms = slowest.longer_ms[0]
        if slowest.only_waits:
            late = _Lateness.among(ranks)
            if (
                late is not None
                and not late.is_of_others
                and late.sure_ms >= max(late.least_ms, longer_ms / 2)
            ):
                return self._named(late, slowest.since, ranks)
            if len(new) < len(ranks):
                if self._looks >= PATIENT_LOOKS:
                    self._settle(ranks)
                return None
        elif _is_of_others(slowest, slowest.own_longer_ms, slowest.longer_ms[-1]):
            self._settle(ranks)
            return None
        return RecordingOrder(
            _with_an_ordinary_one(slowest, ranks), why_longer(slowest, len(ranks)), slowest.since, longer_ms
        )


@dataclass(frozen=True)
class _Lateness:
    """By how much the part of the latest rank is longer than that of the median of the others.

    own_ms: without what it waits longer for a core, which ms has.
    """

    rank: RankSteps
    own_ms: float
    ms: float
    is_of_others: bool  # other processes keep it from its core
    of_phases_ms: Sequence[float]

    @property
    def sure_ms(self) -> float:
        """A rank that computes longer, and waits so much less for a core, is not late."""
        return min(self.own_ms, self.ms)

    @property
    def least_ms(self) -> float:
        return LATE_SHARE * self.rank.step_ms

    @classmethod
    def among(cls, ranks: Sequence[RankSteps]) -> _Lateness | None:
        """Return None without others."""
        latest = max(ranks, key=lambda rank: rank.own_ms)
        others = [rank for rank in ranks if rank is not latest]
        if not others:
            return None
        own_ms = latest.own_ms - median([rank.own_ms for rank in others])
        core_ms = latest.core_ms - median([rank.core_ms for rank in others])
        longer_ms = [
            own - median([rank.phases_ms[phase] for rank in others])
            for phase, own in enumerate(latest.phases_ms)
        ]
        longer_ms[WAIT] = 0.0  # those that wait for it wait longer
        return cls(latest, own_ms, own_ms + core_ms, _is_of_others(latest, own_ms, core_ms), longer_ms)


def _is_of_others(rank: RankSteps, own_ms: float, core_ms: float) -> bool:
    """Return whether other processes, which have the cores, are the reason: a recording knows nothing of
    them. More work of its own waits longer for a core, too. own_ms, core_ms: by which its step is longer."""
    return core_ms >= own_ms and own_ms < BUSY_SHARE * (rank.step_ms - rank.core_ms)


def _with_an_ordinary_one(slowest: RankSteps, ranks: Sequence[RankSteps]) -> list[int]:
    """Return the ranks that are to record: the slowest, and rank 0, which diagnoses ranks together. If it is
    rank 0, the one closest to the median."""
    if len(ranks) == 1:
        return [slowest.rank]
    others = [rank for rank in ranks if rank is not slowest]
    middle_ms = median([rank.own_ms for rank in others])
    ordinary = min(others, key=lambda rank: (rank.rank != 0, abs(rank.own_ms - middle_ms)))
    return sorted((slowest.rank, ordinary.rank))
