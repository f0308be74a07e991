"""Gaps between the nodes of CUDA graphs: what each node came after."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import Bool, Int64, UInt8
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import Gaps
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.recorded import Category


class NodeGap(IntEnum):
    """What makes the GPU wait between two nodes, the slowest first."""

    STREAMS = 0  # a node waits for one of another stream: graphs fork and join
    COPIES = 1  # a copy or a memset comes before or after
    KERNELS = 2  # one kernel follows another


class BeforeNode(NamedTuple):
    """Idle time before the nodes of one name."""

    name: str
    idle_ns: int
    gaps: int


@dataclass(frozen=True, eq=False)
class NodeGaps:
    """Some idle time between the nodes of graphs. Columns have shape (k,).

    before: by the name of the node that ended it, most first. nodes: how many each launch has, on average.
    node_ns: GPU time of the median node.
    """

    kind: UInt8  # NodeGap
    length_ns: Int64
    before: list[BeforeNode]
    nodes: float
    node_ns: float


def node_gaps(work: Work, launched: Bool, device: int, gaps: Gaps, gap: Int64, length_ns: Int64) -> NodeGaps:
    """Describe some idle time of a device between nodes.

    launched: mask of the work launched in the step window, shape (g,) (Facts.launched). gap: the gap in
    `gaps` that each piece of time is in. length_ns: how long it is.
    """
    events = work.events
    ended_by = gaps.ended_by[gap]
    own = work.event[work.device == device]
    own = own[np.argsort(events.end_ns[own], kind="stable")]
    last = own[np.maximum(np.searchsorted(events.end_ns[own], gaps.start_ns[gap], side="right") - 1, 0)]
    kernel = events.category == Category.KERNEL
    kind: UInt8 = np.full(len(gap), NodeGap.COPIES, np.uint8)
    kind[kernel[last] & kernel[ended_by]] = NodeGap.KERNELS
    kind[events.stream[last] != events.stream[ended_by]] = NodeGap.STREAMS
    names, of_name = np.unique(events.name[ended_by], return_inverse=True)
    idle_ns, count = np.bincount(of_name, weights=length_ns), np.bincount(of_name)
    node = launched & work.in_graph
    node_ns = events.duration_ns[work.event[node]]
    return NodeGaps(
        kind,
        length_ns,
        [
            BeforeNode(events.names[names[i]], int(idle_ns[i]), int(count[i]))
            for i in np.argsort(-idle_ns, kind="stable").tolist()
        ],
        len(node_ns) / max(1, len(np.unique(work.launch[node]))),
        float(np.median(node_ns)) if len(node_ns) else 0.0,
    )
