"""Lateness: how much longer than their peers ranks take, by rank and step. A rule says who is slow."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import Bool, Float64, Int64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.own_time import OwnTime


@dataclass(frozen=True, eq=False)
class Lateness:
    """own: the own time that is looked at: all of it, or some parts. Steps are chosen by a mask, `slow`.
    Shares and ratios are NaN where they are not known."""

    facts: JobFacts
    own: OwnTime

    @cached_property
    def lost_ns(self) -> Int64:
        """What the latest rank of each step costs, shape (steps,)."""
        return np.maximum(0, self.own.excess_ns.max(axis=0))

    @cached_property
    def latest(self) -> Int64:
        """The latest rank of each step, shape (steps,)."""
        return self.own.excess_ns.argmax(axis=0)

    @cached_property
    def core_wait_ns(self) -> Int64:
        """How long a rank may wait for another to leave it a core, shape (steps,): as long as a usual rank
        computes. 0 on GPUs: each rank has one, and leaves the cores to the others."""
        own = self.facts.own_time
        if self.facts.on_gpu:
            return np.zeros(len(own.steps), np.int64)
        computing = own.parts_ns[:, :, own.part_names.index("computing")]
        return np.asarray(np.median(computing, axis=0), np.int64)

    def lost_because_of(self, members: Int64, slow: Bool) -> tuple[int, int]:
        """Return how much shorter steps were without these ranks, and if these were like their peers."""
        total, usual = self.own.total_ns[:, slow], self.own.usual_ns[:, slow]
        # By role: stages of a pipeline do not have to be equal.
        rest = total - usual
        rest[members] = 0
        lost = np.maximum(0, self.own.excess_ns[:, slow][members].max(axis=0))
        # While some ranks waited, the late one had their cores. Without the wait, all need them at once.
        alone_ns = np.maximum(0, lost - np.maximum(0, rest.max(axis=0))).sum() - self.core_wait_ns[slow].sum()
        return max(0, int(alone_ns)), int(lost.sum())

    def longer_part(self, late: Bool) -> tuple[str, int]:
        """Return what takes longer, and by how much. late: mask of ranks, or of ranks and steps."""
        more = self.own.excess_parts_ns[late].reshape(-1, len(self.own.part_names)).sum(axis=0)
        part = int(more.argmax())
        return self.own.part_names[part], int(more[part])

    def others_differ_ns(self, members: Int64, slow: Bool) -> int:
        """Return by how much the other ranks differ."""
        others_ns = np.delete(self.own.excess_ns, members, axis=0)[:, slow].sum(axis=1)
        return int(np.ptp(others_ns)) if len(others_ns) else 0

    def other_sizes(self, members: Int64) -> float:
        """Return the share of these ranks' computing that ran with other sizes than on their peers."""
        other = int(self.own.computing_other_ns[members].sum())
        compared = other + int(self.own.computing_same_ns[members].sum())
        return other / compared if compared else math.nan

    def stretched(self, members: Int64, slow: Bool, late_ns: int) -> float:
        """Return the share of the ranks' lateness that is explained if all of their own time is as much
        longer as the same operators are, where others may have their cores: on a CPU."""
        usual_ns = float(self.facts.own_time.usual_ns[members][:, slow].sum()) / len(members)
        longer = math.nan if self.facts.on_gpu else mean(self.facts.kernels.slower[members]) - 1
        return longer * usual_ns / max(1, late_ns)


def mean(values: Float64) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan
