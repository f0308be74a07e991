"""Phase: the part of a job that a memory event belongs to."""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """What part of the job a memory event belongs to."""

    UNKNOWN = 0
    INPUT = 1  # the loader, or a copy from the host
    PARAMETER = 2  # a module is built or moved
    FORWARD = 3  # an operator or a module outside of the other phases
    BACKWARD = 4
    OPTIMIZER = 5
    ZERO_GRAD = 6

    @property
    def label(self) -> str:
        return "" if self in {Phase.UNKNOWN, Phase.INPUT, Phase.PARAMETER} else self.name.lower()
