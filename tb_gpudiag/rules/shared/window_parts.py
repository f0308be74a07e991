"""What a device's step window consists of, for the verdict: work, and idle time by what limits it; and from
which share on a part limits a job.
"""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import summed
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, Cause
from tb_gpudiag.facts.core.ledger import TimeAccount
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.shared.lost_time import ISSUING, Lost
from tb_gpudiag.vocabulary import levels

_ON_HOST = (*BETWEEN_CALLS, *ISSUING)

UNEXPLAINED = (Cause.QUEUED, Cause.UNLINKED, Cause.UNRECORDED)
"""Idle time that no change of the job can be shown to remove."""


@dataclass(frozen=True)
class WindowParts:
    """One device's step window in ns. The fields add up to the window.

    Idle time while the queue fills up again after a synchronization counts as `refilling_ns`, whatever the
    host did meanwhile: without the synchronization the queue would not have run dry.
    """

    computing_ns: int
    copying_ns: int  # exposed
    communicating_ns: int  # exposed
    in_collectives_ns: int  # idle while the host is inside a collective call
    input_ns: int
    synchronizing_ns: int
    refilling_ns: int
    allocator_ns: int
    between_nodes_ns: int  # of CUDA graphs
    launching_ns: int  # from an operator to its kernel, in short gaps between kernels
    operators_ns: int  # the same in long gaps: operators that take long on the host
    python_ns: int
    waiting_ns: int  # the host sat in a call that waits
    compiling_ns: int
    requests_ns: int  # an inference engine had nothing to run
    initialization_ns: int
    profiler_ns: int
    unexplained_ns: int
    lost_ns: int  # kernels may have run that were launched and not recorded

    @property
    def window_ns(self) -> int:
        return sum(vars(self).values())

    @property
    def seen_ns(self) -> int:
        """What the trace shows of the job: the window without the time of lost kernels and the profiler's."""
        return self.window_ns - self.lost_ns - self.profiler_ns

    @property
    def busy_ns(self) -> int:
        return self.computing_ns + self.copying_ns + self.communicating_ns

    @property
    def by_limiter(self) -> dict[str, int]:
        """What each limiter other than computing would account for. "host" is told apart later; "nodes" are
        the gaps between graph nodes."""
        return {
            "input": self.input_ns,
            "sync": self.synchronizing_ns + self.refilling_ns,
            "copy": self.copying_ns,
            "communication": self.communicating_ns + self.in_collectives_ns,
            "memory": self.allocator_ns,
            "nodes": self.between_nodes_ns,
            "host": sum(self.host.values()),
            "waiting": self.waiting_ns,
            "requests": self.requests_ns,
            "initialization": self.initialization_ns,
            "unknown": self.unexplained_ns,
        }

    @property
    def host(self) -> dict[str, int]:
        """What the host does while the GPU waits, by limiter."""
        return {
            "launch": self.launching_ns,
            "python": self.python_ns + self.operators_ns,
            "compile": self.compiling_ns,
        }


def split_window(account: TimeAccount, lost: Lost, unrecorded_ns: int = 0) -> WindowParts:
    """Split the step window. account: `DeviceFacts.window_account`; lost: its idle time; unrecorded_ns: how
    much of that lost kernels may have taken.

    Making tensors on the host counts as data loading: that is what they stand for.
    """
    refilling = summed(lost.cause, lost.drained_ns, len(Cause))
    idle = account.idle_ns[0] - refilling

    own_ns = lost.length_ns - lost.drained_ns
    making = lost.of(*_ON_HOST) & lost.making
    made = np.bincount(lost.cause[making], weights=own_ns[making], minlength=len(Cause)).astype(np.int64)
    long = lost.of(*ISSUING) & ~lost.issuing & ~making

    def total(*causes: Cause) -> int:
        return int(sum(idle[cause] - made[cause] for cause in causes))

    return WindowParts(
        computing_ns=int(account.computing_ns[0]),
        copying_ns=int(account.copying_ns[0]),
        communicating_ns=int(account.communicating_ns[0]),
        in_collectives_ns=total(Cause.COLLECTIVE),
        input_ns=total(Cause.INPUT) + int(made.sum()),
        synchronizing_ns=total(Cause.SYNC),
        refilling_ns=int(refilling.sum()),
        allocator_ns=total(Cause.ALLOCATOR),
        between_nodes_ns=total(Cause.GRAPH),
        launching_ns=total(*ISSUING) - int(own_ns[long].sum()),
        operators_ns=int(own_ns[long].sum()),
        python_ns=total(Cause.PYTHON, Cause.HOST),
        waiting_ns=total(Cause.WAITING),
        compiling_ns=total(Cause.COMPILE),
        requests_ns=total(Cause.REQUESTS),
        initialization_ns=total(Cause.INITIALIZATION),
        profiler_ns=total(Cause.PROFILER),
        unexplained_ns=total(*UNEXPLAINED) - unrecorded_ns,
        lost_ns=unrecorded_ns,
    )


# A GPU that computes this much of the time is limited by computing: everything else together is worth a
# quarter of the step at most.
COMPUTE_SHARE = levels.MOST

# So is one that computes three times as long as the largest other part takes: without that part, it would
# compute for three quarters of the time at least.
COMPUTE_LEAD = 3.0

# The limiter must stand out. If the second part is nearly as large, fixing one only uncovers the other.
CLEAR_LEAD = 1.5

# A smaller part is not worth calling a limiter: removing it would hardly be noticed.
LEAST_SHARE = levels.SIZEABLE


def computing_limits(computing_ns: float, most_ns: float, whole_ns: float) -> bool:
    """Whether computing limits a job. most_ns: its largest other part."""
    return computing_ns >= COMPUTE_SHARE * whole_ns or (
        computing_ns >= COMPUTE_LEAD * most_ns and 2 * computing_ns >= whole_ns
    )
