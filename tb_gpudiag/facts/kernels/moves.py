"""Data movement on the GPU: casts, layout changes, plain copies."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.matching import kind_by_name, match_some
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.vocabulary import gpu_copies, operators
from tb_gpudiag.vocabulary.kernel_names import LAYOUT_KERNEL
from tb_gpudiag.vocabulary.recorded import HOST_CATEGORIES


class Move(IntEnum):
    """Kinds of data movement. Of nested operators, the first kind in this order is the purpose."""

    CAST = 0  # to another number format
    LAYOUT = 1  # the same numbers in another order, or made contiguous
    COPY = 2  # into another tensor


_OPERATORS = (
    (Move.CAST, operators.CAST),
    (Move.LAYOUT, operators.LAYOUT_CHANGE),
    (Move.COPY, operators.COPY),
)


def find_moves(kernels: Kernels, host: Host) -> Int64:
    """Return the Move of each of the kernels, or NONE, shape (k,). Copies from and to the host are NONE."""
    events = host.events
    operator = kernels.operators(host)
    found = np.full(len(operator), NONE, np.int64)
    here = kernels.is_kernel | match_some(events, gpu_copies.ON_DEVICE, kernels.event)
    here &= (operator != NONE) & match_some(events, operators.DATA_MOVER, operator)
    if here.any():
        of_name = kind_by_name(events, _OPERATORS, len(Move))
        on_host = events.among(*HOST_CATEGORIES)
        least = host.tree.least(np.where(on_host, of_name[events.name], len(Move)))
        found[here] = least[operator[here]]
        # A copy by the copy engine moves bytes as they are: both tensors have the same format and layout.
        found[(found != NONE) & (found != len(Move)) & ~kernels.is_kernel] = Move.COPY
    found[kernels.is_kernel & match_some(events, LAYOUT_KERNEL, kernels.event)] = Move.LAYOUT
    return np.where(found == len(Move), NONE, found)
