"""Memory of both sides by device: peaks, and the floor of the steady steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_gpudiag.digest.digest import Digest, numbers, texts
from tb_gpudiag.jobs.compare.side import Side

FIGURES: Final = ("peak", "reserved", "floor")


@dataclass(frozen=True)
class MemoryChange:
    """One figure of one device's memory on both sides."""

    device: str
    what: str  # of FIGURES
    base_bytes: int
    candidate_bytes: int


def compare_memory(base: Side, candidate: Side) -> list[MemoryChange]:
    """Figures that both sides have. One device on each side is the same device, whatever its number."""
    of_base, of_candidate = _memory(base), _memory(candidate)
    if len(of_base) == 1 and len(of_candidate) == 1:
        of_candidate = dict(zip(of_base, of_candidate.values(), strict=True))
    return [
        MemoryChange(device, what, figures[what], of_candidate[device][what])
        for device, figures in of_base.items()
        for what in FIGURES
        if device in of_candidate and what in figures and what in of_candidate[device]
    ]


def _memory(side: Side) -> dict[str, dict[str, int]]:
    """Figures by device, each from the rank where it is largest, as far as the traces have them."""
    found: dict[str, dict[str, int]] = {}
    for digest in side.digests:
        for memory in digest.about.memory:
            own = {"peak": memory.peak_allocated_bytes, "reserved": memory.peak_reserved_bytes}
            own |= _floor(digest, memory.device)
            figures = found.setdefault(memory.device, {})
            for what, value in own.items():
                if value:
                    figures[what] = max(figures.get(what, 0), value)
    return found


def _floor(digest: Digest, device: str) -> dict[str, int]:
    """Median floor of the steps after the warm-up."""
    table = digest.memory
    own = np.array([name == device for name in texts(table, "device")], bool)
    own &= ~table.column("warm_up").to_numpy().astype(bool)
    floors = numbers(table, "floor_bytes")[own]
    return {"floor": int(np.median(floors))} if len(floors) else {}
