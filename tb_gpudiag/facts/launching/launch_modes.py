"""How the job launches: eagerly, from code that torch.compile wrote, or by replaying CUDA graphs; whether
every step launches the same; and which calls of the driver it makes.
"""

from __future__ import annotations

import re

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, Numbers, marked
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, Window, clip, coverage, distinct, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match, match_some
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.api_calls import DEVICE_ALLOCATION, DEVICE_FREE
from tb_gpudiag.vocabulary.kernel_names import INDUCTOR
from tb_gpudiag.vocabulary.marks import COMPILED_CODE
from tb_gpudiag.vocabulary.operators import MATMUL_FACTORS
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES
from tb_gpudiag.vocabulary.torch_frames import EMPTY_CACHE


@dataclass(frozen=True)
class LaunchModes:
    """Compiled code and CUDA graphs in the step window.

    compiled: the host's time in compiled code. waits_in_compiled: synchronizations in it.
    traced_only: the compiled code launches work, and all kernels of the recording are those of eager
    operators: its backend writes none.
    waits: synchronizations between the first and the last launch.
    same_shapes: every step runs the same operators on the same shapes; None if the trace does not say.
    graph_launches: launches of CUDA graphs. graph_work, work: GPU work that they started, and all of it.
    """

    compiled: Intervals
    waits_in_compiled: int
    waits: int
    same_shapes: bool | None
    graph_launches: int
    graph_work: int
    work: int
    traced_only: bool = False


def in_compiled_code(host: Host, compiled: Intervals, origin: Int64) -> Bool:
    """Mask of the GPU work that compiled code launched, shape (k,).

    compiled: LaunchModes.compiled. origin: what launched each, or NONE (Kernels.origin), shape (k,).
    """
    found: Bool = origin != NONE
    called_ns = host.events.start_ns[origin[found]]
    found[found] = coverage(compiled, called_ns, called_ns + 1) > 0
    return found


def launch_modes(
    host: Host, work: Work, launched: Bool, blocking: Int64, steps: Steps, window: Window
) -> LaunchModes:
    """Find how the job launches in the window.

    launched: mask of the work launched in it, shape (g,) (Facts.launched).
    blocking: event indices of the calls that wait for the GPU (handover.HostTime.blocking).
    steps: those in the window.
    """
    events = host.events
    compiled = match(events, COMPILED_CODE) & (host.tree.depth >= 0)
    inside = host.tree.under(compiled)
    spans = np.flatnonzero(compiled)
    starts = events.start_ns[blocking]
    in_window = window.contains(starts)
    by_graph = launched & work.in_graph
    return LaunchModes(
        clip(union(events.start_ns[spans], events.end_ns[spans]), window.start_ns, window.end_ns),
        int((inside[blocking] & in_window).sum()),
        _waits_between_launches(host, work, blocking, window),
        same_shapes(host, work, steps),
        len(np.unique(work.launch[by_graph])),
        int(by_graph.sum()),
        int(launched.sum()),
        _traced_only(work, launched, inside),
    )


def _traced_only(work: Work, launched: Bool, compiled: Bool) -> bool:
    """launched: mask of the work, shape (g,). compiled: mask of the events in compiled code, shape (n,)."""
    own = launched & marked(compiled, work.launch)
    # The kernels of a graph that is replayed may not be recorded.
    if not own.any() or work.in_graph[launched].any():
        return False
    return not match_some(work.events, INDUCTOR, work.event).any()


def _waits_between_launches(host: Host, work: Work, blocking: Int64, window: Window) -> int:
    """Count the waits for the GPU between the window's first launch and its last. The profiler waits before
    and after the steps. Calls inside one operator are one wait, as in sync_sites."""
    launched = work.launch_start_ns[window.contains(work.launch_start_ns)]
    if not len(launched):
        return 0
    starts = host.events.start_ns[blocking]
    calls = blocking[(starts > launched.min()) & (starts < launched.max())]
    operator = host.operator[calls]
    return len(np.unique(np.where(operator == NONE, calls, operator)))


def same_shapes(host: Host, work: Work, steps: Steps) -> bool | None:
    """Return False if operators or shapes differ between steps, True if they do not.

    None with fewer than two steps, or if operators are the same and no shapes were recorded. With three steps
    or more the first one does not count, because it creates what the others reuse.
    """
    events = host.events
    calls = distinct(work.launch[work.linked])
    calls = calls[host.operator[calls] != NONE]
    operator = host.operator[calls]
    order = np.argsort(steps.start_ns, kind="stable")[1 if len(steps) > 2 else 0 :]
    if len(order) < 2:
        return None
    step = np.searchsorted(steps.start_ns[order], events.start_ns[calls], side="right") - 1
    inside = (step >= 0) & (events.start_ns[calls] < steps.end_ns[order][np.maximum(step, 0)])
    matmul = np.array([name in MATMUL_FACTORS for name in events.names], np.bool_)[events.name[operator]]
    shapes = np.where(matmul, events.shapes[operator], NONE)
    launched = np.stack([step, events.name[operator], shapes])[:, inside]
    launched, count = np.unique(launched, axis=1, return_counts=True)
    borders = np.searchsorted(launched[0], np.arange(1, len(order)))
    first, *others = np.split(np.vstack([launched[1:], count]), borders, axis=1)
    if not all(np.array_equal(first, other) for other in others):
        return False
    return True if (first[1] != NONE).any() else None


class DriverCalls:
    """The host's calls into the driver."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def of(self, name: re.Pattern[str]) -> Int64:
        """Return the calls with matching names: event indices."""
        calls = self._events.where(*CALL_CATEGORIES)
        return calls[match_some(self._events, name, calls)]

    def count_by_name(self, name: re.Pattern[str], window: Window | None = None) -> list[tuple[str, int]]:
        """Count calls with matching names, in the window if one is given: (name, calls), most calls first."""
        events = self._events
        calls = self.of(name)
        if window is not None:
            starts = events.start_ns[calls]
            calls = calls[window.contains(starts)]
        number, count = np.unique(events.name[calls], return_counts=True)
        order = np.argsort(-count, kind="stable")
        return [(events.names[number[i]], int(count[i])) for i in order]


@dataclass(frozen=True)
class AllocatorCalls:
    """The device allocations and frees that begin in a window.

    turns: how often an allocation follows a free or the other way around, in time order over all threads.
    retries: how often an operator asks for memory, frees more blocks than it was given, and asks again, as
    PyTorch's allocator does when the driver has no memory left.
    """

    allocations: int
    frees: int
    turns: int
    retries: int
    frees_in_empty_cache: int
    empty_cache_calls: int


def allocator_calls(host: Host, window: Window) -> AllocatorCalls:
    events = host.events
    inside = window.contains(events.start_ns)
    calls = events.where(*CALL_CATEGORIES)
    calls = calls[inside[calls]]
    frees, allocates = match_some(events, DEVICE_FREE, calls), match_some(events, DEVICE_ALLOCATION, calls)
    in_order, operator = frees[frees | allocates], host.operator[calls[frees | allocates]]
    empty_cache = match(events, EMPTY_CACHE) & (host.tree.depth >= 0)
    return AllocatorCalls(
        int(allocates.sum()),
        int(frees.sum()),
        int((in_order[1:] != in_order[:-1]).sum()),
        _retries(in_order, operator),
        int(host.tree.under(empty_cache)[calls[frees]].sum()),
        int((host.tree.outermost_of(empty_cache) & inside).sum()),
    )


def _retries(frees: Bool, operator: Numbers) -> int:
    """frees: which calls free, the others allocate; operator: that each is in, or NONE. In time order."""
    edge = np.r_[True, (frees[1:] != frees[:-1]) | (operator[1:] != operator[:-1])]
    edge = np.flatnonzero(edge[: len(frees)])
    calls, frees, operator = np.diff(np.r_[edge, len(frees)]), frees[edge], operator[edge]
    before, here, after = slice(-2), slice(1, -1), slice(2, None)
    found = frees[here] & (operator[here] != NONE) & (calls[here] > calls[before])
    found &= (operator[before] == operator[here]) & (operator[after] == operator[here])
    return int(found.sum())
