"""Kinds of collectives, from the names of c10d's operators, of the back ends' marks, and of kernels."""

from __future__ import annotations

import re
from enum import IntEnum

from tb_gpudiag.trace.vocabulary.patterns import any_of


class Collective(IntEnum):
    """Collectives that have the same fix."""

    ALL_REDUCE = 0
    SHARDED = 1  # all-gather and reduce-scatter: weights and gradients in shards
    ALL_TO_ALL = 2
    POINT_TO_POINT = 3  # send and receive
    BROADCAST = 4
    OTHER = 5


_ANY = re.I | re.S

# NCCL runs both all-to-all and point-to-point in kernels named SendRecv: those names decide nothing.
NAMES = (
    (Collective.SHARDED, any_of(r".*(all_?gather|reduce_?scatter).*", flags=_ANY)),
    (
        Collective.ALL_TO_ALL,
        any_of(
            r".*(all_?to_?all|all2all|deep_ep|(\b|_)ep::|internode|intranode|mori::|ulysses).*", flags=_ANY
        ),
    ),
    (Collective.ALL_REDUCE, any_of(r".*(all_?reduce|cross_device_reduce).*", flags=_ANY)),
    (Collective.BROADCAST, any_of(r".*broadcast.*", flags=_ANY)),
    (Collective.POINT_TO_POINT, any_of(r"(c10d::|\w+:)(batch_)?i?(send|recv)(_|\b).*", flags=_ANY)),
)
"""The first row that matches the whole name decides."""
