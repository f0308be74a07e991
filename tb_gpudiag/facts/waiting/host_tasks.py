"""What the host did beside the model: work of its own that a library's name tells."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.trace.events import HOST_CATEGORIES, NONE, Int64
from tb_gpudiag.trace.vocabulary import host_libraries
from tb_gpudiag.trace.vocabulary.patterns import LONGEST_MATCHED


class HostTask(IntEnum):
    """Where one lies inside another, the first of them is what the time is for: an image is
    resized to be logged."""

    GARBAGE = 0  # gc.collect(); a collection that starts by itself has no mark
    LOGGING = 1  # log lines, progress bars, metrics, print
    SAVING = 2  # a checkpoint
    TOKENIZING = 3
    PREPARING = 4  # images, sound and video: decoded, resized, normalised


_NAMES = (
    (HostTask.GARBAGE, host_libraries.GARBAGE_COLLECTION),
    (HostTask.LOGGING, host_libraries.LOGGING),
    (HostTask.SAVING, host_libraries.SAVING),
    (HostTask.TOKENIZING, host_libraries.TOKENIZING),
    (HostTask.PREPARING, host_libraries.PREPARING),
)

_OTHER = len(HostTask)


def host_task_of(name: str) -> HostTask | None:
    """What a span of this name is done for."""
    return next((task for task, pattern in _NAMES if pattern.fullmatch(name, 0, LONGEST_MATCHED)), None)


@dataclass(frozen=True)
class HostTasks:
    """Shape (n,) each, over all events.

    kind: a HostTask, or NONE.
    call: the outermost span of a task, or NONE.
    caller: what called that one, or NONE.
    """

    kind: Int64
    call: Int64
    caller: Int64

    def time_ns(self, event: Int64, weight_ns: Int64) -> dict[HostTask, int]:
        """ns of each task, most first. event: shape (k,), host events or NONE; weight_ns: shape (k,), the
        time that each stands for."""
        kind = np.where(event == NONE, NONE, self.kind[event])
        known = kind != NONE
        total = np.bincount(kind[known], weights=weight_ns[known], minlength=len(HostTask))
        return {HostTask(i): int(total[i]) for i in np.argsort(-total, kind="stable") if total[i]}


def find_host_tasks(host: Host) -> HostTasks:
    """Frames of Python tell: without stacks, nothing is known."""
    events, tree = host.events, host.tree
    tasks = [host_task_of(name) for name in events.names]
    of_name = np.array([_OTHER if task is None else task for task in tasks], np.int64)
    nothing = np.full(len(events), NONE, np.int64)
    if not (of_name != _OTHER).any():
        return HostTasks(nothing, nothing, nothing)
    on_host = np.isin(events.category, np.array(HOST_CATEGORIES, np.uint8))
    own = np.where(on_host, of_name[events.name], _OTHER)
    least = tree.least(own)
    call = tree.outermost(own != _OTHER)
    caller = np.where(call == NONE, NONE, tree.parent[call])
    return HostTasks(np.where(least == _OTHER, NONE, least), call, caller)
