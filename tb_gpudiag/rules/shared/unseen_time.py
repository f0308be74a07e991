"""Unseen time: the GPU waits for the host, and the trace does not show what the host does."""

from __future__ import annotations

from tb_gpudiag.arrays import NONE, Bool
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.recording import Recorded
from tb_gpudiag.rules.shared.lost_time import Lost

# Between two operators Python takes microseconds. Without stacks, a stretch of a millisecond without any
# operator or call may be Python, a sleep, a lock or another library.
LONG_STRETCH_NS = 1_000_000

# If more than half of what the host did is invisible, the trace does not show what it did.
MOSTLY = 0.5


def unseen(lost: Lost, host: Host, recorded: Recorded) -> Bool:
    """Mask of lost time between calls that may be anything on the host, shape (s,).

    With stacks, nothing is unseen. Without operators, everything between two runtime calls is.
    """
    unlocated = lost.of(Cause.PYTHON) & ~located(lost, host)
    if recorded.stacks:
        return unlocated & False
    return unlocated & (lost.length_ns >= LONG_STRETCH_NS) if recorded.operators else unlocated


def located(lost: Lost, host: Host) -> Bool:
    """Mask of lost time for which the trace has a line or an operator, shape (s,)."""
    found: Bool = lost.event != NONE
    event = lost.event[found]
    found[found] = (host.place[event] != NONE) | (host.operator[event] != NONE)
    return found
