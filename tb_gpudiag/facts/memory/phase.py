"""Phase: the part of a job that a memory event belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from tb_gpudiag.arrays import Bool
from tb_gpudiag.vocabulary.recorded import FRAMES_OF_STACK
from tb_gpudiag.vocabulary.torch_frames import THREAD_ROOT


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


def in_engine(stacks: Sequence[str]) -> Bool:
    """Mask of the stacks of threads that autograd's engine started, as far as others show where Python's own
    threads begin."""
    whole = np.array([THREAD_ROOT.search(stack) is not None for stack in stacks], np.bool_)
    cut = np.array([stack.count("\n") + 1 >= FRAMES_OF_STACK for stack in stacks], np.bool_)
    return ~whole & ~cut & whole.any()
