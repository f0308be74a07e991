"""CUDA graphs that were recorded as one event each: when they ran is known, and not which kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, clip, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match_some
from tb_gpudiag.facts.core.steps import Window
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.kernel_names import WHOLE_GRAPH


@dataclass(frozen=True)
class WholeGraphs:
    """Graphs of one device in the window: how many, and when at least one ran."""

    launches: int = 0
    times: Intervals = EMPTY


def whole_graphs(events: Events, work: Work, device: int, window: Window) -> WholeGraphs:
    """Find the graphs of a device that were recorded as one event each."""
    chosen = work.event[(events.device[work.event] == device) & match_some(events, WHOLE_GRAPH, work.event)]
    inside = (events.end_ns[chosen] > window.start_ns) & (events.start_ns[chosen] < window.end_ns)
    chosen = chosen[inside]
    times = clip(union(events.start_ns[chosen], events.end_ns[chosen]), window.start_ns, window.end_ns)
    return WholeGraphs(int(np.count_nonzero(inside)), times)
