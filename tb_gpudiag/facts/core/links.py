"""Links: pairs of events, of which the first leads to the second."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Int64, UInt8
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.vocabulary.recorded import LabeledEnum

# Host and GPU clocks differ by up to this much: a wait may seem to return before the work that it waits for
# ends.
CLOCK_NS = 2_000


class LinkKind(LabeledEnum):
    """How the first event leads to the second."""

    LAUNCH = 0  # a host call starts GPU work
    RELEASE = 1  # GPU work ends, and so does the host call that waited for it
    BACKWARD = 2  # a forward operator creates the node that the backward operator runs


class Links(NamedTuple):
    """Event indices of each pair, shape (l,) each."""

    first: Int64
    second: Int64
    kind: UInt8  # LinkKind


def find_links(host: Host, work: Work, blocking: Int64) -> Links:
    """Find what launches, releases and backward operators link. blocking: the calls that wait for the GPU,
    shape (b,)."""
    linked, backward = work.linked, host.backward_nodes
    creator = host.creators(backward, host.forward_by_sequence)
    pairs = (
        (LinkKind.LAUNCH, work.launch[linked], work.event[linked]),
        (LinkKind.RELEASE, *_releases(work, blocking)),
        (LinkKind.BACKWARD, creator[creator != NONE], backward[creator != NONE]),
    )
    return Links(
        np.concatenate([first for _, first, _ in pairs]).astype(np.int64),
        np.concatenate([second for _, _, second in pairs]).astype(np.int64),
        np.repeat(np.array([kind for kind, _, _ in pairs], np.uint8), [len(first) for _, first, _ in pairs]),
    )


def _releases(work: Work, blocking: Int64) -> tuple[Int64, Int64]:
    """Match each wait to the GPU work that ended last before it returned: a copy that blocks, to the copy."""
    events = work.events
    if not len(work):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    ends = work.end_ns
    order = np.argsort(ends, kind="stable")
    returns = events.end_ns[blocking]
    at = np.searchsorted(ends[order], returns + CLOCK_NS, side="right") - 1
    released_by = np.where(at >= 0, work.event[order[np.maximum(at, 0)]], NONE)
    own = np.full(len(events), NONE, np.int64)
    linked = work.linked & (work.launch_end_ns + CLOCK_NS >= ends)
    own[work.launch[linked]] = work.event[linked]
    released_by = np.where(own[blocking] != NONE, own[blocking], released_by)
    waited = (released_by != NONE) & (events.end_ns[released_by] > events.start_ns[blocking])
    return released_by[waited], blocking[waited]
