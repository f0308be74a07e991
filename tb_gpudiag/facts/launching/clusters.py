"""Launches that fewer could replace: the same operators again and again in a row by one host thread, as in a
loop over parameters or time steps; chains of elementwise kernels; copies that DistributedDataParallel makes,
and that one of its arguments removes; and optimizers that update one parameter at a time.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, Numbers
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, Window, coverage, distinct, expand, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import marks, operators, torch_frames
from tb_gpudiag.vocabulary.kernel_families import MATRIX_FAMILIES, Family
from tb_gpudiag.vocabulary.kernel_names import read_names
from tb_gpudiag.vocabulary.marks import PARAMETER_LOOP
from tb_gpudiag.vocabulary.recorded import Category

LONGEST_PERIOD = 6
"""Most launches in one iteration of a loop: an optimizer without foreach has one to six per parameter."""


class ClusterKind(IntEnum):
    OPTIMIZER_STEP = 0  # inside torch's mark of an optimizer's step
    ZERO_GRAD = 1
    LOOP = 2  # anywhere else
    ELEMENTWISE = 3  # a chain of elementwise kernels that do not repeat
    ACCUMULATE = 4  # autograd adds gradients to existing ones


@dataclass(frozen=True, eq=False)
class Cluster:
    """All clusters of the same operators at the same place."""

    kind: ClusterKind
    mark: str  # the optimizer's or autograd's mark, or ""
    operators: list[str]  # of one iteration, sorted by name; empty for a chain
    clusters: int
    calls: Int64  # launch calls, in order of launch
    first: Bool  # mask of the calls that begin a cluster, shape of `calls`
    gpu_ns: int  # GPU time of the launched work
    spans: Intervals  # from the first launch of each cluster to its last
    backward: Int64  # launch calls of autograd's nodes that a loop's operators created


def find_clusters(
    host: Host, work: Work, copies: Int64, device: int, window: Window, *, least_turns: int, least_chain: int
) -> list[Cluster]:
    """Find the device's clusters in the window: loops of at least `least_turns` iterations, chains of at
    least `least_chain` launches.

    An iteration is 1 to LONGEST_PERIOD launches, each with the same operator, place and module as in the
    iteration before. Repeated matmuls outside any module may be a stack of layers, so they are excluded, as
    are collectives. A loop that launches nothing but copies from or to the host has no kernels to merge.

    copies: launch calls of those, event indices.
    """
    events = host.events
    launched = work.linked & window.contains(work.launch_start_ns)
    some = np.flatnonzero(launched & (work.device == device))
    calls, first_work, of_call = np.unique(work.launch[some], return_index=True, return_inverse=True)
    if not len(calls):
        return []
    gpu_ns = np.bincount(of_call, weights=events.duration_ns[work.event[some]], minlength=len(calls))
    order = np.lexsort((events.start_ns[calls], events.thread[calls]))
    calls, kernel, gpu_ns = calls[order], events.name[work.event[some[first_work]]][order], gpu_ns[order]
    operator = host.operator[calls]
    name, place, module = host.names(operator), host.place[calls], host.module[calls]
    thread = events.thread[calls]
    turns = np.stack([name, place, host.names(module), thread])
    family = np.zeros(len(events.names), np.uint8)
    used = np.unique(kernel)
    family[used] = [read.family for read in read_names([events.names[i] for i in used])]
    matrix = np.isin(family[kernel], np.array(MATRIX_FAMILIES, np.uint8)) & (module == NONE)
    excluded = _counts(matrix | (family[kernel] == Family.COLLECTIVE) | (name == NONE))

    start, stop, period = _repetitions(turns, operator, excluded, least_turns)
    chained = (family[kernel] == Family.ELEMENTWISE) & (name != NONE)
    chained[_members(start, stop)] = False
    more, until = _runs(chained & np.r_[False, thread[1:] == thread[:-1]], least_chain)
    start, stop, period = np.r_[start, more], np.r_[stop, until], np.r_[period, np.zeros_like(more)]
    if not len(start):
        return []

    mark = host.names(host.tree.nearest_of(match(events, PARAMETER_LOOP))[calls[start]])
    offset = np.arange(LONGEST_PERIOD)
    within = np.minimum(start[:, None] + offset, len(name) - 1)
    turn = np.sort(np.where(offset < period[:, None], name[within], NONE), axis=1)
    at = np.where(period > 0, place[start], NONE)
    _, member = np.unique(np.column_stack([mark, at, period, turn]), axis=0, return_inverse=True)
    by_key = np.argsort(member.reshape(-1), kind="stable")
    found = []
    backward, created_ns = _in_backward(host, work)
    for own in np.split(by_key, np.cumsum(np.bincount(member.reshape(-1)))[:-1]):
        index = _members(start[own], stop[own])
        if np.isin(calls[index], copies).all():
            continue
        of_mark = "" if mark[own[0]] == NONE else events.names[mark[own[0]]]
        found.append(
            Cluster(
                _kind(of_mark, int(period[own[0]])),
                of_mark,
                sorted(events.names[i] for i in turn[own[0]] if i != NONE),
                len(own),
                calls[index],
                np.isin(index, start[own]),
                int(gpu_ns[index].sum()),
                spans := union(events.start_ns[calls[start[own]]], events.end_ns[calls[stop[own] - 1]]),
                backward[coverage(spans, created_ns, created_ns + 1) > 0],
            )
        )
    return found


def _in_backward(host: Host, work: Work) -> tuple[Int64, Int64]:
    """Return the calls that autograd's nodes launch, and when the forward operators began; shape (k,)."""
    calls = distinct(work.launch[work.linked])
    forward = host.forward[calls]
    return calls[forward != NONE], host.events.start_ns[forward[forward != NONE]]


def _kind(mark: str, period: int) -> ClusterKind:
    found = PARAMETER_LOOP.fullmatch(mark)
    if found is None:
        return ClusterKind.LOOP if period else ClusterKind.ELEMENTWISE
    if found["what"] is None:
        return ClusterKind.ACCUMULATE
    return ClusterKind.ZERO_GRAD if found["what"] == "zero_grad" else ClusterKind.OPTIMIZER_STEP


def _repetitions(
    turns: Int64, operator: Numbers, excluded: Int64, least_turns: int
) -> tuple[Int64, Int64, Int64]:
    """Find runs of launches that repeat: (start, stop, period), the shortest period first.

    turns: shape (columns, calls). excluded: how many launches before each position may be in no run, shape
    (calls + 1,). Several launches of one operator's call are not a repetition.
    """
    count = turns.shape[1]
    used = np.zeros(count, np.bool_)
    found = []
    for period in range(1, LONGEST_PERIOD + 1):
        same = np.zeros(count, np.bool_)
        same[period:] = (turns[:, period:] == turns[:, :-period]).all(axis=0)
        same[period:] &= operator[period:] != operator[:-period]
        start, stop = _runs(same, (least_turns - 1) * period)
        start = start - period
        before = _counts(used)
        keep = (before[stop] == before[start]) & (excluded[stop] == excluded[start])
        # Two runs of one period may share the first iteration.
        keep &= np.r_[True, start[1:] >= stop[:-1]]
        found.append((start[keep], stop[keep], np.full(int(keep.sum()), period, np.int64)))
        used[_members(start[keep], stop[keep])] = True
    start, stop, periods = (np.concatenate(column) for column in zip(*found, strict=True))
    return start, stop, periods


def _counts(chosen: Bool) -> Int64:
    """Count the chosen ones before each position, shape (k + 1,)."""
    counts = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(chosen, out=counts[1:])
    return counts


def _runs(chosen: Bool, least: int) -> tuple[Int64, Int64]:
    """Find stretches of at least `least` chosen ones: (start, stop)."""
    edges = np.diff(np.r_[0, chosen.astype(np.int8), 0])
    start, stop = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    keep = stop - start >= least
    return start[keep].astype(np.int64), stop[keep].astype(np.int64)


def _members(start: Int64, stop: Int64) -> Int64:
    """Return all positions of the stretches, one after another."""
    return expand(start, stop)[1]


@dataclass(frozen=True)
class DdpCopies:
    """The host's time in these copies.

    buffers: broadcasting the module's buffers before each forward pass, and copying them back.
    gradients: copying reduced buckets into the gradients.
    """

    buffers: Intervals
    gradients: Intervals


def ddp_copies(host: Host) -> DdpCopies:
    """Find the copies by the names of operators. The time between two operators of one kind counts as
    well."""
    events, tree = host.events, host.tree
    operator = (events.category == Category.CPU_OP) & (tree.depth >= 0)
    forward = match(events, torch_frames.DDP_FORWARD) & (tree.depth >= 0)
    to_gradient = match(events, torch_frames.DDP_BUCKET_TO_GRADIENT) & operator
    if not forward.any() and not to_gradient.any():
        return DdpCopies(EMPTY, EMPTY)
    parent = tree.parent
    around = np.where(parent == NONE, NONE, host.operator[np.maximum(parent, 0)])
    inside_forward = tree.under(forward)
    outer = operator & ~forward & ((around == NONE) | forward[np.maximum(around, 0)])
    ordered = np.flatnonzero(outer)
    ordered = ordered[np.argsort(events.thread[ordered], kind="stable")]  # by thread, then start
    broadcast = match(events, torch_frames.DDP_BROADCAST) & inside_forward
    unpacking = match(events, torch_frames.DDP_UNPACKING) & inside_forward
    return DdpCopies(
        _copying(host, ordered, broadcast | unpacking, broadcast),
        _copying(host, ordered, to_gradient, to_gradient),
    )


def _copying(host: Host, ordered: Int64, member: Bool, first: Bool) -> Intervals:
    """Join consecutive members on a thread, each run from its earliest `first` operator to its end.

    ordered: operators by thread and start; member, first: masks over all events.
    """
    events = host.events
    own = member[ordered]
    begins = own & ~np.r_[False, own[:-1] & (events.thread[ordered][1:] == events.thread[ordered][:-1])]
    run = np.cumsum(begins) - 1
    start = np.full(int(begins.sum()), np.iinfo(np.int64).max)
    end = np.zeros(len(start), np.int64)
    starts = own & first[ordered]
    np.minimum.at(start, run[starts], events.start_ns[ordered[starts]])
    np.maximum.at(end, run[own], events.end_ns[ordered[own]])
    return union(start, end)  # runs without a first operator are empty


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
