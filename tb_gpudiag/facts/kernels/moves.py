"""Work of the GPU that only moves data on it: casts, other layouts, plain copies."""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np

from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.names import match
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.trace.events import HOST_CATEGORIES, NONE, Int64


class Move(IntEnum):
    """Where one lies inside another, the first of them is what it is done for."""

    CAST = 0  # to another number format
    LAYOUT = 1  # the same numbers in another order, or side by side again
    COPY = 2  # into another tensor


_OPERATORS = (
    (Move.CAST, re.compile(r"aten::(to|_to_copy|type_as|float|half|bfloat16|double)")),
    (Move.LAYOUT, re.compile(r"aten::(contiguous|clone|reshape|flatten|_reshape_copy|unfold)")),
    (Move.COPY, re.compile(r"aten::copy_")),
)
_MOVER = re.compile(r"aten::(copy_|clone|_to_copy)")
"""What launches it in the end."""

# A library's own changes of layout, around its convolutions and products.
_LAYOUT_KERNEL = re.compile(r".*(nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|[Bb]atched_transpose).*", re.S)
_ON_DEVICE = re.compile(r"Memcpy DtoD.*|CopyDeviceToDevice.*", re.S)


def find_moves(kernels: Kernels, work: Work, host: Host) -> Int64:
    """Shape (k,) over Kernels: a Move, or NONE. Copies from and to the host are none."""
    events = host.events
    launch = kernels.launches(work)
    operator = np.where(launch == NONE, NONE, host.operator[launch])
    found = np.full(len(launch), NONE, np.int64)
    here = kernels.is_kernel | match(events, _ON_DEVICE)[kernels.event]
    here &= (operator != NONE) & match(events, _MOVER)[operator]
    if here.any():
        of_name = np.full(len(events.names), len(Move), np.int64)
        for i, name in enumerate(events.names):
            of_name[i] = next((move for move, pattern in _OPERATORS if pattern.fullmatch(name)), len(Move))
        on_host = np.isin(events.category, np.array(HOST_CATEGORIES, np.uint8))
        least = host.tree.least(np.where(on_host, of_name[events.name], len(Move)))
        found[here] = least[operator[here]]
    found[kernels.is_kernel & match(events, _LAYOUT_KERNEL)[kernels.event]] = Move.LAYOUT
    return np.where(found == len(Move), NONE, found)
