"""Host tasks: work next to the model that library frames identify."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64, Numbers, mask_of
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import groups
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.core.threads import HostTree
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import operators
from tb_gpudiag.vocabulary.patterns import LONGEST_MATCHED
from tb_gpudiag.vocabulary.recorded import Category
from tb_gpudiag.vocabulary.torch_frames import TASK_NAMES, HostTask

# On an H200, cuDNN's attention takes the host up to 0.6 ms with a plan, and 20 to 32 ms without one.
_LEAST_PLANNING_NS = 5_000_000

# One core fills some megabytes in this time: a batch, not a counter.
_LEAST_FILLING_NS = 500_000


def host_task_of(name: str) -> HostTask | None:
    """Return the task that spans of this name perform; None if they perform no task."""
    found = (task for task, names in TASK_NAMES.items() if names.fullmatch(name, 0, LONGEST_MATCHED))
    return next(found, None)


@dataclass(frozen=True, eq=False)
class HostTasks:
    """The host task of each event. Shape (n,) each.

    kind: HostTask, or NONE.
    call: the task's outermost span, or NONE.
    own: mask of what the user's own functions are by their names.
    """

    kind: Int32
    call: Int32
    own: Bool
    _tree: HostTree

    def of(self, event: Numbers) -> Int64:
        """Return the task of each event, or NONE, shape of `event`, which may be NONE."""
        return np.where(event == NONE, NONE, self.kind[event]).astype(np.int64)

    def calls(self, event: Int64) -> Int64:
        """Return the call that each event's task is; where no name says one, the event itself. Shape of
        `event`."""
        return np.where(self.call[event] == NONE, event, self.call[event])

    def caller(self, event: Int64) -> Int64:
        """Return the span that called the task of each event, that task if it is a function of the user's
        own, or the event itself, shape of `event`."""
        call = self.call[event]
        return np.where(call == NONE, event, np.where(self.own[call], call, self._tree.parent[call]))

    def time_ns(self, event: Int64, weight_ns: Int64) -> dict[HostTask, int]:
        """Add up time by task: task -> ns, most first.

        event: host events or NONE, shape (k,). weight_ns: the time of each, shape (k,).
        """
        kind = self.of(event)
        known = kind != NONE
        total = np.bincount(kind[known], weights=weight_ns[known], minlength=len(HostTask))
        return {HostTask(i): int(total[i]) for i in np.argsort(-total, kind="stable") if total[i]}


def find_host_tasks(host: Host, launches: Int64) -> HostTasks:
    """Find the host tasks. Python frames identify most of them, so there are few without stacks.

    launches: events of the calls that launch work; without any, there is no GPU.
    """
    kind, call = host.task.copy(), host.task_call.copy()
    if len(launches):
        alone = (host.events.category == Category.CPU_OP) & ~host.tree.any_below(
            mask_of(launches, len(host.events))
        )
        for task, found in ((HostTask.MAKING, _makes_tensors), (HostTask.COMPUTING, _computes)):
            own = found(host, alone)
            inside = host.tree.under(own) & (kind == NONE)
            kind[inside] = task
            call[inside] = host.tree.outermost(own)[inside]
        planning = match(host.events, operators.CUDNN_ATTENTION) & (kind == NONE)
        planning &= host.events.duration_ns >= _LEAST_PLANNING_NS
        kind[planning] = HostTask.PLANNING
        call[planning] = np.flatnonzero(planning)
    return HostTasks(kind, call, host.own_task, host.tree)


def _makes_tensors(host: Host, alone: Bool) -> Bool:
    """Mask of operators that fill tensors with random numbers, or large ones with others, shape (n,). alone:
    of operators that launch nothing."""
    making = match(host.events, operators.RANDOM)
    making |= match(host.events, operators.FILLED) & (host.events.duration_ns >= _LEAST_FILLING_NS)
    return making & alone


def _computes(host: Host, alone: Bool) -> Bool:
    """Mask of operators that take long by themselves, as calls like them mostly do, shape (n,). Others were
    interrupted, wait, get memory, or join samples. alone: of operators that launch nothing."""
    events, own_ns = host.events, host.tree.own_ns
    other = match(events, operators.WAITS_OR_COPIES) | match(events, operators.GETS_MEMORY)
    other |= match(events, operators.COMPUTES_NOTHING)
    some = np.flatnonzero(match(events, operators.ATEN) & alone & ~other)
    kind, _ = groups(events.name[some].astype(np.int64), events.shapes[some].astype(np.int64))
    long = own_ns[some] >= np.maximum(_LEAST_FILLING_NS, events.duration_ns[some] // 2)
    mostly = 2 * np.bincount(kind, weights=long) >= np.bincount(kind)
    return mask_of(some[long & mostly[kind]], len(events))
