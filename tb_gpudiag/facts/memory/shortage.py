"""What a job held, needed and could do without when an allocation failed."""

from __future__ import annotations

from functools import cached_property

from tb_gpudiag.arrays import Int64
from tb_gpudiag.facts.memory.fitting import Fit
from tb_gpudiag.facts.memory.memory_kinds import Allocations
from tb_gpudiag.facts.memory.unfinished import bytes_to_come
from tb_gpudiag.facts.memory.waste import Waste, find_waste
from tb_gpudiag.facts.memory.ways import Way, find_ways, fits_without


class Shortage:
    """The last failure of one device. Its parts are computed when they are first used, and are empty without
    one."""

    def __init__(self, allocations: Allocations, fit: Fit | None, capacity_bytes: int) -> None:
        self._allocations = allocations
        self._fit = fit if capacity_bytes else None
        self._capacity_bytes = capacity_bytes
        self._known = len(allocations.failures) > 0 and allocations.paired

    @cached_property
    def waste(self) -> list[Waste]:
        """What was held, and the job could do without, most bytes first."""
        return find_waste(self._allocations, self._fits_without) if self._known else []

    @cached_property
    def to_come_bytes(self) -> int:
        """What the forward pass that failed would have kept in addition, as far as that is known."""
        return bytes_to_come(self._allocations) if self._known else 0

    @cached_property
    def ways(self) -> list[Way]:
        """How the request might have fit, replayed; empty where that cannot be told."""
        if self._fit is None or not self._known:
            return []
        return find_ways(self._allocations, self._fit.start, self._fit.changes, self._capacity_bytes)

    def _fits_without(self, gone: Int64) -> bool | None:
        """Whether the request would fit, replayed without these allocations (indices); None where that cannot
        be told."""
        if self._fit is None:
            return None
        return fits_without(self._fit.start, self._fit.changes, self._capacity_bytes, gone)
