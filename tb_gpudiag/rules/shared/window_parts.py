"""The step window split into the parts that a verdict ranks. Each is a sum of rows of the account."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.ledger import Account
from tb_gpudiag.rules.shared.lost_time import ISSUING, Lost

HOST_CAUSES = (Cause.PYTHON, Cause.COMPILE)
"""The host is busy with work of its own, and is not on its way to a launch."""

UNEXPLAINED = (Cause.QUEUED, Cause.UNLINKED, Cause.PROFILER, Cause.UNRECORDED)
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
    launching_ns: int  # CPU operator overhead, launch calls, launch latency
    python_ns: int  # Python and compilation
    initialization_ns: int
    unexplained_ns: int

    @property
    def window_ns(self) -> int:
        return sum(vars(self).values())

    @property
    def busy_ns(self) -> int:
        return self.computing_ns + self.copying_ns + self.communicating_ns

    @property
    def by_limiter(self) -> dict[str, int]:
        """What each limiter other than computing would account for. "host" is told apart later."""
        return {
            "input": self.input_ns,
            "sync": self.synchronizing_ns + self.refilling_ns,
            "copy": self.copying_ns,
            "communication": self.communicating_ns + self.in_collectives_ns,
            "memory": self.allocator_ns,
            "host": self.launching_ns + self.python_ns,
            "initialization": self.initialization_ns,
            "unknown": self.unexplained_ns,
        }


def split_window(account: Account, lost: Lost) -> WindowParts:
    """Split the step window. account: `DeviceFacts.window_account`; lost: its idle time."""
    refilling = np.zeros(len(Cause), np.int64)
    np.add.at(refilling, lost.cause, lost.drained_ns)
    idle = account.idle_ns[0] - refilling

    def total(*causes: Cause) -> int:
        return int(sum(idle[cause] for cause in causes))

    return WindowParts(
        computing_ns=int(account.computing_ns[0]),
        copying_ns=int(account.copying_ns[0]),
        communicating_ns=int(account.communicating_ns[0]),
        in_collectives_ns=total(Cause.COLLECTIVE),
        input_ns=total(Cause.INPUT),
        synchronizing_ns=total(Cause.SYNC),
        refilling_ns=int(refilling.sum()),
        allocator_ns=total(Cause.ALLOCATOR),
        launching_ns=total(*ISSUING),
        python_ns=total(*HOST_CAUSES),
        initialization_ns=total(Cause.INITIALIZATION),
        unexplained_ns=total(*UNEXPLAINED),
    )
