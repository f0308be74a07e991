"""How the job launches: eagerly, from code that torch.compile wrote, or by replaying CUDA graphs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, Window, clip, coverage, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match, match_some
from tb_gpudiag.vocabulary.api_calls import GRAPH_LAUNCH
from tb_gpudiag.vocabulary.marks import COMPILED_CODE


@dataclass(frozen=True)
class LaunchModes:
    """Compiled code and CUDA graphs in the step window.

    compiled: the host's time in compiled code. waits_in_compiled: synchronizations in it.
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


def in_compiled_code(host: Host, compiled: Intervals, origin: Int64) -> Bool:
    """Mask of the GPU work that compiled code launched, shape (k,).

    compiled: LaunchModes.compiled. origin: what launched each, or NONE (Kernels.origin), shape (k,).
    """
    found: Bool = origin != NONE
    called_ns = host.events.start_ns[origin[found]]
    found[found] = coverage(compiled, called_ns, called_ns + 1) > 0
    return found


def launch_modes(
    host: Host,
    work: Work,
    launched: Bool,
    blocking: Int64,
    window: Window,
    waits: int,
    same_shapes: bool | None,
) -> LaunchModes:
    """Find how the job launches in the window.

    launched: mask of the work launched in it, shape (g,) (Facts.launched).
    blocking: event indices of the calls that wait for the GPU (handover.HostTime.blocking).
    waits, same_shapes: see LaunchModes.
    """
    events = host.events
    compiled = match(events, COMPILED_CODE) & (host.tree.depth >= 0)
    inside = host.tree.under(compiled)
    spans = np.flatnonzero(compiled)
    starts = events.start_ns[blocking]
    in_window = (starts >= window.start_ns) & (starts < window.end_ns)
    calls = work.launch[launched]
    by_graph = match_some(events, GRAPH_LAUNCH, calls)
    return LaunchModes(
        clip(union(events.start_ns[spans], events.end_ns[spans]), window.start_ns, window.end_ns),
        int((inside[blocking] & in_window).sum()),
        waits,
        same_shapes,
        len(np.unique(calls[by_graph])),
        int(by_graph.sum()),
        len(calls),
    )
