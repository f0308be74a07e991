"""Optimizers that update one parameter at a time, as the host's operators show it."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import marks, operators
from tb_gpudiag.vocabulary.recorded import Category


@dataclass(frozen=True, eq=False)
class OptimizerLoop:
    """Steps of an optimizer in the window, without those that run a backward pass themselves, as L-BFGS does
    to search along a line: these train, and hardly update.

    mark: of the first one; "" without any. steps, steps_ns: event indices of the marks, and their durations.
    operators: that they run, those inside other operators not counted. grouped: whether one of them is for
    many parameters at once.
    """

    mark: str
    steps: Int64
    steps_ns: Int64
    operators: int
    grouped: bool

    @property
    def time_ns(self) -> int:
        return int(self.steps_ns.sum())


def optimizer_loop(host: Host, window: Window) -> OptimizerLoop:
    """Count the operators of the optimizer's steps that begin in the window."""
    events, tree = host.events, host.tree
    steps = match(events, marks.OPTIMIZER_STEP) & window.contains(events.start_ns) & (tree.depth >= 0)
    steps &= ~_trains(host, steps)
    inside = tree.under(steps) & (events.category == Category.CPU_OP) & ~steps
    own = np.flatnonzero(tree.outermost_of(steps))
    return OptimizerLoop(
        events.names[events.name[own[0]]] if len(own) else "",
        own,
        events.duration_ns[own],
        int(tree.outermost_of(inside).sum()),
        bool((inside & match(events, operators.FOR_MANY_TENSORS)).any()),
    )


def _trains(host: Host, steps: Bool) -> Bool:
    """Mask of the steps during which autograd runs backward, on any thread; shape (n,) as `steps`."""
    events = host.events
    began = np.sort(events.start_ns[match(events, operators.AUTOGRAD_NODE)])
    first, last = (
        np.searchsorted(began, ns) for ns in (events.start_ns, events.start_ns + events.duration_ns)
    )
    return np.asarray(steps & (last > first), np.bool_)
