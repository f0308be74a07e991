"""What a job held, needed and could do without when an allocation failed."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.facts.memory.earlier_models import find_earlier_models
from tb_gpudiag.facts.memory.fitting import Fit
from tb_gpudiag.facts.memory.lost_passes import find_lost_passes, trains_elsewhere
from tb_gpudiag.facts.memory.since import Since, find_since
from tb_gpudiag.facts.memory.unfinished import bytes_to_come, quadratic_bytes
from tb_gpudiag.facts.memory.waste import Waste, WasteKind, find_waste
from tb_gpudiag.facts.memory.ways import Way, find_ways, fits_without
from tb_gpudiag.facts.memory.weight_copies import find_copies, find_loaded


class Shortage:
    """The last failure of one device. Its parts are computed when they are first used, and are empty without
    one."""

    def __init__(self, allocations: Allocations, fit: Fit | None, capacity_bytes: int) -> None:
        self._allocations = allocations
        self._fit = fit if capacity_bytes else None
        self._capacity_bytes = capacity_bytes
        self._known = len(allocations.failures) > 0 and allocations.paired

    @cached_property
    def since(self) -> Since | None:
        """How it differs from the first time that the job got this far and it fit; None where nothing like it
        came before."""
        return find_since(self._allocations) if self._known else None

    @cached_property
    def trains_elsewhere(self) -> bool:
        """Whether the pass that failed is called where nothing was trained, after steps that were."""
        return self._known and trains_elsewhere(self._allocations)

    @cached_property
    def waste(self) -> list[Waste]:
        """What was held, and the job could do without, most bytes first."""
        if not self._known:
            return []
        lost = find_lost_passes(self._allocations, int(self._allocations.failures[-1]))
        kept = self.since.kept if self.since is not None else np.zeros(0, np.int64)
        left = {
            WasteKind.MODELS: find_earlier_models(self._allocations),
            WasteKind.LOADED: find_loaded(self._allocations),
            WasteKind.COPIES: find_copies(self._allocations),
        }
        return find_waste(self._allocations, left, lost, kept, self._fits_without)

    @cached_property
    def to_come_bytes(self) -> int:
        """What the forward pass that failed would have kept in addition, as far as that is known."""
        return bytes_to_come(self._allocations) if self._known else 0

    @cached_property
    def quadratic_bytes(self) -> int:
        """What was held where results grow with the square of a length."""
        return quadratic_bytes(self._allocations) if self._known else 0

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
