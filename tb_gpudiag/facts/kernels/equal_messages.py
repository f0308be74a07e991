"""What one rank's trace shows of waiting: equal messages take equally long but for the wait for other
ranks."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Int64, numbered
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, coverage, places_of_each
from tb_gpudiag.facts.kernels.collectives import CollectiveCalls

# One short message may be an accident of the recording; of fewer, none is known to be short.
LEAST_EQUAL: Final = 3

# Where sizes are unknown, a collective of this many times the median of its kind is not just a larger one: a
# rank that sleeps makes others wait a second in collectives that usually take 3 ms.
FAR_LONGER: Final = 20
FEWEST_OF_KIND: Final = 6


def longer_ns(host: Host, calls: CollectiveCalls, *, than_median: bool = False) -> Int64:
    """Return by how much each collective took longer than the shortest with the same kind, group and size, or
    than their median; NONE where there are too few of them. Shape (c,). It may still be less than the
    waiting: the shortest may have waited, too.

    Before torch 2.2, only the shapes of what is sent tell its size, with the type in the kernel's name."""
    events = host.events
    shapes = np.where(calls.call == NONE, NONE, events.shapes[calls.call])
    sized = zip(
        calls.kind, calls.message, calls.bytes.tolist(), shapes.tolist(), calls.event.tolist(), strict=True
    )
    keys = [
        (kind, said.group, bytes_, *((NONE, NONE) if bytes_ > 0 else (shape, int(events.name[event]))))
        for kind, said, bytes_, shape, event in sized
    ]
    of = numbered(keys)
    groups = int(of.max(initial=-1)) + 1
    length = calls.end_ns - calls.start_ns
    count = np.bincount(of, minlength=groups)
    ordered = length[np.lexsort((length, of))]
    usual = ordered[np.cumsum(count) - count + (count // 2 if than_median else 0)]
    known = ((calls.bytes > 0) | (shapes != NONE)) & (count[of] >= LEAST_EQUAL)
    return np.where(known, np.maximum(0, length - usual[of]), NONE)


def exposed_waiting_ns(host: Host, calls: CollectiveCalls, exposed: Intervals) -> int:
    """Return by how much collectives took longer than equal ones, as far as that was exposed."""
    own = coverage(exposed, calls.start_ns, calls.end_ns)
    return min(exposed.total, int(np.minimum(own, np.maximum(0, longer_ns(host, calls))).sum()))


def far_longer_ns(calls: CollectiveCalls, exposed: Intervals) -> int:
    """Return the exposed time of collectives of unknown size that took far longer than usual for their kind
    and group."""
    of = numbered([(kind, said.group) for kind, said in zip(calls.kind, calls.message, strict=True)])
    length, own = calls.end_ns - calls.start_ns, coverage(exposed, calls.start_ns, calls.end_ns)
    found, unsized = 0, np.flatnonzero(calls.bytes <= 0)
    for _, places in places_of_each(of[unsized]):
        if len(places) >= FEWEST_OF_KIND:
            of_kind = unsized[places]
            long = of_kind[length[of_kind] >= FAR_LONGER * np.median(length[of_kind])]
            found += int(own[long].sum())
    return min(exposed.total, found)
