"""Ranks that the others wait for, from the own time of all ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import Float64, Int64
from tb_gpudiag.jobs.ranks.own_time import OwnTime


@dataclass(frozen=True)
class Stragglers:
    """How uneven the ranks are.

    excess_ns: own time of each member above its peers', over all steps, shape (members,). steps_above: share
    of the steps in which a member is above by `least`, shape (members,). lost_ns: of each step, how much its
    slowest rank is above its peers, shape (steps,); slowest: that member, shape (steps,).
    """

    excess_ns: Int64
    steps_above: Float64
    lost_ns: Int64
    slowest: Int64


def stragglers_of(own: OwnTime, least: float) -> Stragglers:
    """Compare own times. least: share of a step from which on a member is above its peers."""
    excess = own.excess_ns
    steps = excess.shape[1]
    total: Int64 = excess.sum(axis=1)
    above = excess >= least * np.maximum(1, own.step_ns)[None, :]
    slowest = excess.argmax(axis=0) if steps else np.zeros(0, np.int64)
    lost = np.maximum(0, excess.max(axis=0)) if steps else np.zeros(0, np.int64)
    return Stragglers(
        excess_ns=total,
        steps_above=above.mean(axis=1) if steps else np.zeros(len(total)),
        lost_ns=lost,
        slowest=slowest,
    )


def main_part(own: OwnTime, members: Int64) -> tuple[str, int]:
    """Return the part that these members have most more of than their peers, and how much in all."""
    more = own.excess_parts_ns[members].sum(axis=(0, 1))
    best = int(more.argmax())
    return own.part_names[best], int(more[best])


def other_sizes(own: OwnTime, members: Int64) -> float:
    """Share of the computing of these members, where it can be compared, that ran with other sizes than the
    peers'; NaN if none can."""
    same = int(own.computing_same_ns[members].sum())
    other = int(own.computing_other_ns[members].sum())
    return other / (same + other) if same + other else float("nan")
