"""Decides from what each rank says of its steps which ranks are to record, and why."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from tb_gpudiag.training.step_clock import PHASES, WAIT
from tb_gpudiag.wording.format import figures, share

LATE_SHARE: Final = 0.1
"""A rank is late if its own part of a step, without waiting, is longer than that of the median rank by this
share of a step. Ranks of healthy jobs on one busy machine differ by less for long."""

LATE_BLOCKS: Final = 4
"""For so many blocks in a row: chance, a checkpoint or an evaluation makes a rank late once."""

# Beside other processes, the same work takes more time even while it has a core: caches are shared, and cores
# have two threads.
BUSY_SHARE: Final = 0.25

# A rank that waits longer has no reason of its own. The rank that has may be heard of some looks later.
PATIENT_LOOKS: Final = 4

MOST_A_DAY: Final = 4
"""Recordings of a clock. Each slows a few steps down, and takes some megabytes."""

AFTER_S: Final = 600.0
"""After one, what other ranks say is likely to be about the same thing."""

_DAY_S: Final = 86_400.0


@dataclass(frozen=True)
class RankSteps:
    """What a rank says. Times are medians over its last blocks, in ms.

    core_ms: how long its main thread could run and had no core. drifts: how many it has found. since,
    gradual, longer_ms: of the last one; longer_ms is of the step, its phases, and core_ms.
    """

    rank: int
    step: int
    blocks: int
    step_ms: float
    phases_ms: Sequence[float]
    core_ms: float = 0.0
    drifts: int = 0
    since: int = 0
    gradual: bool = False
    longer_ms: Sequence[float] = ()

    @property
    def own_ms(self) -> float:
        """Its part of a step: without waiting for other ranks."""
        return self.step_ms - self.phases_ms[WAIT]

    @property
    def own_longer_ms(self) -> float:
        return self.longer_ms[0] - self.longer_ms[1 + WAIT]


@dataclass(frozen=True)
class RecordingOrder:
    """These ranks record. since: the step at which it began."""

    ranks: Sequence[int]
    why: str
    since: int


class RankWatch:
    """Looks at all ranks again and again."""

    def __init__(self) -> None:
        self._heard: dict[int, int] = {}  # drifts by rank that are settled
        self._looks = 0  # since the first drift that is not
        self._times = self._block = 0  # blocks in a row for which a rank is late, and the last of them
        self._latest: RankSteps  # as it was with the first of them
        self._known_ms: dict[int, float] = {}  # lateness of ranks that were named
        self._orders_s: deque[float] = deque(maxlen=MOST_A_DAY)

    def look(self, ranks: Sequence[RankSteps], now_s: float) -> RecordingOrder | None:
        """Return what is to be recorded now. ranks: at least this one; those that were heard of lately."""
        order = self._late(ranks) or self._drifted(ranks)
        if order is None:
            return None
        self._settle(ranks)
        orders = self._orders_s
        if orders and now_s - orders[-1] < AFTER_S:
            return None
        if len(orders) == MOST_A_DAY and now_s - orders[0] < _DAY_S:
            return None
        orders.append(now_s)
        return order

    def _settle(self, ranks: Sequence[RankSteps]) -> None:
        self._heard = {rank.rank: rank.drifts for rank in ranks}
        self._looks = 0

    def _late(self, ranks: Sequence[RankSteps]) -> RecordingOrder | None:
        """Return an order if one rank is late for long enough."""
        late = _Lateness.among(ranks)
        least_ms = late.least_ms + self._known_ms.get(late.rank.rank, 0.0) if late is not None else 0.0
        if late is None or late.ms < least_ms or late.is_of_others:
            self._times = 0
            return None
        if not self._times or self._latest.rank != late.rank.rank:
            self._times, self._latest, self._block = 1, late.rank, late.rank.blocks
        elif late.rank.blocks > self._block:
            self._times, self._block = self._times + 1, late.rank.blocks
        return self._named(late, self._latest.step, ranks) if self._times >= LATE_BLOCKS else None

    def _named(self, late: _Lateness, since: int, ranks: Sequence[RankSteps]) -> RecordingOrder:
        self._times = 0
        self._known_ms[late.rank.rank] = late.ms
        why = (
            f"rank {late.rank.rank} of {len(ranks)} is late since about step {since}: its part of a step "
            f"takes {_ms(late.ms)} longer than that of the others; {_most(late.of_phases_ms)}"
        )
        return RecordingOrder(_with_an_ordinary_one(late.rank, ranks), why, since)

    def _drifted(self, ranks: Sequence[RankSteps]) -> RecordingOrder | None:
        """Return an order if the steps of a rank take longer, and no other process is to blame."""
        new = [rank for rank in ranks if rank.drifts > self._heard.get(rank.rank, 0)]
        if not new:
            return None
        self._looks += 1
        slowest = max(new, key=lambda rank: rank.own_longer_ms)
        longer_ms, *of_phases_ms, of_core_ms = slowest.longer_ms
        if slowest.own_longer_ms < longer_ms / 2:  # it waits for another one
            late = _Lateness.among(ranks)
            if late is not None and late.ms >= max(late.least_ms, longer_ms / 2):
                if not late.is_of_others:
                    return self._named(late, slowest.since, ranks)
                self._settle(ranks)
                return None
            if self._looks < PATIENT_LOOKS:
                return None
        if _is_of_others(longer_ms, of_core_ms, slowest.step_ms):
            self._settle(ranks)
            return None
        before_ms = slowest.step_ms - longer_ms
        of_rank = f"on rank {slowest.rank} of {len(ranks)} " if len(ranks) > 1 else ""
        since = f"step {slowest.since}"
        since = f"little by little, compared with {since}" if slowest.gradual else f"since about {since}"
        why = (
            f"steps {of_rank}take {share(longer_ms / max(before_ms, 1e-6))} longer {since}: "
            f"{_ms(longer_ms)}; {_most(of_phases_ms)}"
        )
        return RecordingOrder(_with_an_ordinary_one(slowest, ranks), why, slowest.since)


@dataclass(frozen=True)
class _Lateness:
    """By how much the part of the latest rank is longer than that of the median of the others."""

    rank: RankSteps
    ms: float
    is_of_others: bool  # other processes keep it from its core
    of_phases_ms: Sequence[float]

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
        late_ms = latest.own_ms - median([rank.own_ms for rank in others])
        core_ms = latest.core_ms - median([rank.core_ms for rank in others])
        longer_ms = [
            own - median([rank.phases_ms[phase] for rank in others])
            for phase, own in enumerate(latest.phases_ms)
        ]
        longer_ms[WAIT] = 0.0  # those that wait for it wait longer
        return cls(latest, late_ms, _is_of_others(late_ms, core_ms, latest.step_ms), longer_ms)


def _is_of_others(longer_ms: float, core_ms: float, step_ms: float) -> bool:
    """Return whether other processes, which have the cores, are the reason: a recording knows nothing of
    them. More work of its own waits longer for a core, too."""
    return core_ms >= longer_ms / 2 and longer_ms - core_ms < BUSY_SHARE * step_ms


def _with_an_ordinary_one(slowest: RankSteps, ranks: Sequence[RankSteps]) -> list[int]:
    """Return the ranks that are to record: the slowest, and rank 0, which diagnoses ranks together. If it is
    rank 0, the one closest to the median."""
    if len(ranks) == 1:
        return [slowest.rank]
    others = [rank for rank in ranks if rank is not slowest]
    middle_ms = median([rank.own_ms for rank in others])
    ordinary = min(others, key=lambda rank: (rank.rank != 0, abs(rank.own_ms - middle_ms)))
    return sorted((slowest.rank, ordinary.rank))


def _most(longer_ms: Sequence[float]) -> str:
    """Say which phase takes most of it."""
    phase = max(range(len(PHASES)), key=lambda at: longer_ms[at])
    return f"{_ms(longer_ms[phase])} of it in {_WORDS.get(PHASES[phase], PHASES[phase])}"


_WORDS: Final[Mapping[str, str]] = {
    "input": "waiting for the next batch (input)",
    "wait": "waiting for other ranks (wait)",
    "garbage": "garbage collection",
    "other": "what is around forward, backward and optimizer (other)",
}


def _ms(time_ms: float) -> str:
    return f"{figures(time_ms)} ms"
