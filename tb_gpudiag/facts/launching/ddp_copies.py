"""Copies that DistributedDataParallel makes, and that one of its arguments removes."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, union
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import torch_frames
from tb_gpudiag.vocabulary.recorded import Category


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
        _runs(host, ordered, broadcast | unpacking, broadcast), _runs(host, ordered, to_gradient, to_gradient)
    )


def _runs(host: Host, ordered: Int64, member: Bool, first: Bool) -> Intervals:
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
