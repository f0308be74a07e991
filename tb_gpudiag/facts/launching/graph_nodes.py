"""Nodes of CUDA graphs: what each came after, and the captured call that it is of, which has an operator,
shapes and a module.

A replay runs exactly the kernels that were captured. So a graph launch and a capture belong together if they
have the same kernels by name, each as often. Of one name, the first one captured is the first one that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, UInt8, median
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import places_of_each
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import Gaps
from tb_gpudiag.facts.core.matching import match_some
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import CaptureTrace, Events, join_events
from tb_gpudiag.vocabulary import api_calls, marks
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, HOST_CATEGORIES, Category


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
        median(node_ns),
    )


_COPY, _SET = "(copy)", "(memset)"
"""What copies and memsets are called, which have other names on the host than on the GPU."""


class BatchSizes(NamedTuple):
    """When batches begin, in order, and their sizes, NONE where not known. Shape (b,) each."""

    start_ns: Int64
    size: Int64


@dataclass(frozen=True, eq=False)
class CapturedGraphs:
    """What captures say about the kernels of graphs.

    files: names of the recordings of captures. nodes: pieces of work of all graph launches. matched: of them,
    those whose capture was found. ambiguous: those that several recordings fit. unnamed: no capture names its
    kernels, as CUDA's calls do not.
    host: the recording's calls, and after them those of the captures in use. origin: Work.origin, and of
    matched nodes the captured call, as an event of `host`. Shape (g,).
    """

    files: list[str]
    nodes: int
    matched: int
    ambiguous: int
    unnamed: bool
    host: Host
    origin: Int64


@dataclass(frozen=True, eq=False)
class _Graph:
    """One launch, or one capture. nodes: indices into Work, or captured calls, in order of name, then of
    time. names: theirs, as numbers. size: of the batch, or NONE. file: the recording of a capture."""

    names: tuple[int, ...]
    nodes: Int64
    size: int
    file: int = NONE


def find_captured(
    work: Work, host: Host, captures: Sequence[CaptureTrace], batches: BatchSizes
) -> CapturedGraphs | None:
    """Join the nodes of graphs to captured calls; None without captures, or without graph launches."""
    if not captures or not work.in_graph.any():
        return None
    numbers: dict[str, int] = {}
    captured = [graph for i, one in enumerate(captures) for graph in _captured(one.events, i, numbers)]
    turns, ambiguous = _turns(captured, _launched(work, batches, numbers))
    events, origin = work.events, work.origin.copy()
    for file, pairs in _by_file(captured, turns).items():
        others = captures[file].events
        chosen = others.where(*HOST_CATEGORIES)
        place = np.full(len(others), NONE, np.int64)
        place[chosen] = np.arange(len(chosen)) + len(events)
        events = join_events(events, others, chosen)
        for launch, graph in pairs:
            origin[launch.nodes] = place[graph.nodes]
    return CapturedGraphs(
        [capture.name for capture in captures],
        int(work.in_graph.sum()),
        sum(len(launch.names) for launches in turns.values() for launch in launches),
        ambiguous,
        not captured,
        Host(events) if turns else host,
        origin,
    )


_Turns = dict[tuple[int, ...], list[_Graph]]
"""Launches by the captures that fit them, as indices."""


def _turns(captured: list[_Graph], launches: Iterable[_Graph]) -> tuple[_Turns, int]:
    """Find the captures of launches. Return also the number of nodes that several recordings fit."""
    found: dict[tuple[tuple[int, ...], int], list[int]] = {}
    turns: _Turns = {}
    ambiguous = 0
    for launch in launches:
        key = launch.names, launch.size
        fitting = found[key] if key in found else found.setdefault(key, _fitting(captured, launch))
        if len({captured[i].file for i in fitting}) > 1:
            ambiguous += len(launch.names)
        elif fitting:
            turns.setdefault(tuple(fitting), []).append(launch)
    return turns, ambiguous


def _fitting(captured: list[_Graph], launch: _Graph) -> list[int]:
    """Return the captures with the kernels of a launch. Captures for other batch sizes can have the same
    ones, with other shapes: a server replays the smallest graph that the batch fits into."""
    fitting = [i for i, graph in enumerate(captured) if graph.names == launch.names]
    if launch.size == NONE or any(captured[i].size == NONE for i in fitting):
        return fitting
    size = min((captured[i].size for i in fitting if captured[i].size >= launch.size), default=NONE)
    return [i for i in fitting if captured[i].size == size]


def _by_file(captured: list[_Graph], turns: _Turns) -> dict[int, list[tuple[_Graph, _Graph]]]:
    """Pair launches with captures, by the file of these. Layers are captured one after the other, and
    replayed in the same order. If they do not come out even, the first one stands for all."""
    pairs: dict[int, list[tuple[_Graph, _Graph]]] = {}
    for fitting, launches in turns.items():
        even = len(launches) % len(fitting) == 0
        for i, launch in enumerate(launches):
            graph = captured[fitting[i % len(fitting) if even else 0]]
            pairs.setdefault(graph.file, []).append((launch, graph))
    return pairs


def _captured(events: Events, file: int, numbers: dict[str, int]) -> Iterator[_Graph]:
    """Yield the graphs whose capture is recorded, in order, if their kernels are named. numbers: of names,
    to which new ones are added."""
    calls = events.where(*CALL_CATEGORIES)
    begins = calls[match_some(events, api_calls.CAPTURE_BEGIN, calls)]
    ends = calls[match_some(events, api_calls.CAPTURE_END, calls)]
    launches = calls[match_some(events, api_calls.LAUNCH_CALL, calls)]
    launches = launches[~match_some(events, api_calls.GRAPH_LAUNCH, launches)]
    marks_of_capture = events.where(Category.USER_ANNOTATION)
    marks_of_capture = marks_of_capture[match_some(events, marks.CAPTURE, marks_of_capture)]
    marked_from = events.start_ns[marks_of_capture]
    for begin in begins.tolist():
        thread, start = events.thread[begin], events.start_ns[begin]
        after = events.start_ns[ends[(events.thread[ends] == thread) & (events.start_ns[ends] > start)]]
        inside = (events.thread[launches] == thread) & (events.start_ns[launches] > start)
        own = launches[inside & (events.start_ns[launches] < after.min(initial=np.iinfo(np.int64).max))]
        names = [_call_name(events, call) for call in own.tolist()]
        if len(own) and len(after) and all(names):
            marked = marks_of_capture[(marked_from <= start) & (events.end_ns[marks_of_capture] >= start)]
            around = events.names[events.name[marked[-1]]] if len(marked) else ""
            yield _graph(names, own, marks.captured_size(around) if around else NONE, numbers, file)


def _call_name(events: Events, call: int) -> str:
    """What a captured call launches; "" where it does not say."""
    if events.launched[call] != NONE:
        return events.launched_kernels[events.launched[call]]
    name = events.names[events.name[call]]
    return _SET if "Memset" in name else _COPY if "Memcpy" in name else ""


def _launched(work: Work, batches: BatchSizes, numbers: dict[str, int]) -> Iterator[_Graph]:
    """Yield each graph launch, in order. The numbers of nodes in their graph, where recorded, are in the
    order of the capture; the order in which nodes of several streams run is not."""
    events = work.events
    own = np.flatnonzero(work.in_graph)
    own = own[np.lexsort((own, events.sequence[work.event[own]]))]
    kinds = {int(Category.MEMCPY): _COPY, int(Category.MEMSET): _SET}
    sizes = np.r_[batches.size, NONE]  # of no batch, at the place NONE
    launches = sorted(places_of_each(work.launch[own]), key=lambda one: int(events.start_ns[one[0]]))
    for launch, places in launches:
        node = own[np.sort(places)]
        event = work.event[node]
        named = zip(events.category[event].tolist(), events.name[event].tolist(), strict=True)
        names = [kinds.get(category, events.names[name]) for category, name in named]
        at = int(np.searchsorted(batches.start_ns, events.start_ns[launch], side="right")) - 1
        yield _graph(names, node, int(sizes[at]), numbers)


def _graph(names: list[str], nodes: Int64, size: int, numbers: dict[str, int], file: int = NONE) -> _Graph:
    number = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)
    order = np.argsort(number, kind="stable")
    return _Graph(tuple(number[order].tolist()), nodes[order], size, file)
