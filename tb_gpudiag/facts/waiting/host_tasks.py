"""Host tasks: work next to the model that library frames identify."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.threads import HostTree
from tb_gpudiag.vocabulary import libraries
from tb_gpudiag.vocabulary.patterns import LONGEST_MATCHED


class HostTask(IntEnum):
    """Kinds of host tasks. Of nested tasks, the first one in this order is the purpose: an image is resized
    to be logged."""

    GARBAGE = 0  # gc.collect(); automatic collections are not in the trace
    LOGGING = 1  # log lines, progress bars, metrics, print
    SAVING = 2  # a checkpoint
    TOKENIZING = 3
    PREPARING = 4  # images, sound and video: decoded, resized, normalized
    SLEEPING = 5  # time.sleep()


_NAMES = (
    (HostTask.GARBAGE, libraries.GARBAGE_COLLECTION),
    (HostTask.LOGGING, libraries.LOGGING),
    (HostTask.SAVING, libraries.SAVING),
    (HostTask.TOKENIZING, libraries.TOKENIZING),
    (HostTask.PREPARING, libraries.PREPARING),
    (HostTask.SLEEPING, libraries.SLEEPING),
)


def host_task_of(name: str) -> HostTask | None:
    """Return the task that spans of this name perform; None if they perform no task."""
    return next((task for task, pattern in _NAMES if pattern.fullmatch(name, 0, LONGEST_MATCHED)), None)


@dataclass(frozen=True)
class HostTasks:
    """The host task of each event. Shape (n,) each.

    kind: HostTask, or NONE.
    call: the task's outermost span, or NONE.
    """

    kind: Int64
    call: Int64
    _tree: HostTree

    def caller(self, event: Int64) -> Int64:
        """Return the span that called the task of each event, or NONE, shape of `event`."""
        call = self.call[event]
        return np.where(call == NONE, NONE, self._tree.parent[call])

    def time_ns(self, event: Int64, weight_ns: Int64) -> dict[HostTask, int]:
        """Add up time by task: task -> ns, most first.

        event: host events or NONE, shape (k,). weight_ns: the time of each, shape (k,).
        """
        kind = np.where(event == NONE, NONE, self.kind[event])
        known = kind != NONE
        total = np.bincount(kind[known], weights=weight_ns[known], minlength=len(HostTask))
        return {HostTask(i): int(total[i]) for i in np.argsort(-total, kind="stable") if total[i]}


def find_host_tasks(host: Host) -> HostTasks:
    """Find the host tasks. Python frames identify them, so there are none without stacks."""
    kind, call = host.purpose(_NAMES, len(HostTask))
    return HostTasks(np.where(kind == len(HostTask), NONE, kind), call, host.tree)
