"""Survivors: allocations of one site, made throughout the recording, that nothing frees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import NONE, UInt8
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.memory.sites import site_keys, span_name
from tb_gpudiag.trace.events import MemoryEvents
from tb_gpudiag.vocabulary.frames import Frame, innermost_place

PARTS = 8
"""The recording is divided into this many parts with as many allocations each."""

FEWEST_PARTS = 6
"""Survivors are in at least this many of them: weights and state are allocated at once, and what a step still
needs is allocated at the end."""


@dataclass(frozen=True)
class Survivors:
    """The site whose survivors hold most bytes."""

    operator: str
    frame: Frame | None
    bytes: int
    count: int


def largest_survivors(
    allocations: Allocations, host: Host, memory: MemoryEvents, phase: UInt8
) -> Survivors | None:
    """Find the site with most memory that is never freed; None without one, and without addresses.

    phase: of each memory event, shape (m,).
    """
    kept = (allocations.freed == NONE) & (phase[allocations.event] != Phase.PARAMETER)
    if memory.found is not None:
        kept &= ~memory.found[allocations.event]
    chosen = np.flatnonzero(kept)
    if not allocations.paired or not len(chosen):
        return None
    site, one = site_keys(allocations, host, chosen)
    part = chosen * PARTS // len(allocations)
    parts = np.zeros((len(one), PARTS), np.bool_)
    parts[site, part] = True
    size = np.bincount(site, weights=allocations.bytes[chosen], minlength=len(one))
    size[parts.sum(axis=1) < FEWEST_PARTS] = 0
    largest = int(size.argmax())
    if not size[largest]:
        return None
    row = int(one[largest])
    stack, place = int(allocations.stack[row]), int(allocations.place[row])
    return Survivors(
        operator=span_name(host, int(allocations.operator[row])),
        frame=host.frame(place) if stack == NONE else innermost_place(memory.stacks[stack]),
        bytes=int(size[largest]),
        count=int((site == largest).sum()),
    )
