"""Small operators: those so short on the CPU that dispatching them takes longer than what they compute."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.recorded import Category

# Dispatching an operator takes some microseconds, more while it is recorded. In 20 µs one core computes about
# a million operations: such an operator may still be mostly overhead.
SMALL_NS: Final = 20_000

# The operating system interrupts some operators for some milliseconds. Where nearly all calls of an operator
# are small, the few others are such calls, unless they take more than twice the time of all small ones.
_USUALLY: Final = 0.98
_INTERRUPTED_NS: Final = 5_000_000
_MOST_INTERRUPTED: Final = 2


def in_small_operators(host: Host) -> Bool:
    """Mask of the events whose innermost operator is small, shape (n,)."""
    small = _small(host.events)
    found: Bool = host.operator != NONE
    found[found] = small[host.operator[found]]
    return found


def _small(events: Events) -> Bool:
    operator = events.category == Category.CPU_OP
    small: Bool = operator & (events.duration_ns < SMALL_NS)
    longer = operator & ~small & (events.duration_ns < _INTERRUPTED_NS)
    names = len(events.names)
    calls, few = (np.bincount(events.name[some], minlength=names) for some in (operator, operator & ~small))
    time, more = (
        np.bincount(events.name[some], weights=events.duration_ns[some], minlength=names)
        for some in (small, longer)
    )
    interrupted = (few <= (1 - _USUALLY) * calls) & (more <= _MOST_INTERRUPTED * time)
    small |= longer & interrupted[events.name]
    return small
