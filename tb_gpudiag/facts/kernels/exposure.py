"""Exposure: of each collective, which parallelism and which unit of the model it is for, how long nothing
computed meanwhile, and why; and what one rank's trace shows of waiting: equal messages take equally long but
for the wait for other ranks.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Int64, UInt8, numbered
from tb_gpudiag.facts.core.causes import Cause, CauseSpans
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, Window, coverage, groups, places_of_each, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import Busy
from tb_gpudiag.facts.kernels.collectives import CollectiveCalls, collective_launches, exposed_communication
from tb_gpudiag.facts.kernels.exposure_reasons import (
    ExposureReason,
    SeenCollectives,
    why_on_cpu,
    why_on_device,
)
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.collective_kinds import FSDP, IN_ORDER, fsdp_unit, parallelism_of
from tb_gpudiag.vocabulary.marks import module_label

ROOT = "(root)"
"""The unit that FSDP's marks do not name: the model itself."""


class UnitExposure(NamedTuple):
    """Collectives of one kind, for one unit, exposed for one reason."""

    kind: str
    parallelism: str
    unit: str  # "" where the trace does not say
    number: int  # in its step, from 1; NONE if a unit is named, or they differ
    of: int  # collectives of its kind and caller in a step
    why: ExposureReason
    calls: int
    bytes: int  # median; NONE if the trace does not say
    time_ns: int
    exposed_ns: int
    event: int  # the longest exposed one
    late_in: int  # what the host did before it launched that one, as an event, or NONE


@dataclass(frozen=True, eq=False)
class CollectiveExposure(SeenCollectives):
    """Collectives with the reason of their exposure. Shape (c,) each.

    why: ExposureReason.
    late_in: what the host did before a late launch, as an event, or NONE.
    """

    why: UInt8
    late_in: Int64

    def __len__(self) -> int:
        return len(self.calls)

    def first(self, count: int) -> CollectiveExposure:
        columns = {one.name: getattr(self, one.name)[:count] for one in fields(self) if one.name != "calls"}
        return CollectiveExposure(calls=self.calls.first(count), **columns)

    @cached_property
    def parallelism(self) -> list[str]:
        """The parallelism that each is for, "" where the trace does not say."""
        return list(map(parallelism_of, self.calls.kind, self.caller))

    @cached_property
    def by_unit(self) -> list[UnitExposure]:
        """Collectives of one kind, unit and reason together, the most exposed first."""
        tells = [caller in IN_ORDER and not unit for caller, unit in zip(self.caller, self.unit, strict=True)]
        place = np.where(np.array(tells, np.bool_), self.number, NONE)
        texts = (numbered(column) for column in (self.calls.kind, self.parallelism, self.unit))
        group, _ = groups(*texts, place, self.why.astype(np.int64))
        bytes_, length = self.calls.bytes, self.calls.end_ns - self.calls.start_ns
        found = []
        for _, own in places_of_each(group):
            first, most = int(own[0]), int(own[self.exposed_ns[own].argmax()])
            found.append(
                UnitExposure(
                    kind=self.calls.kind[first],
                    parallelism=self.parallelism[first],
                    unit=self.unit[first],
                    number=int(place[first]),
                    of=int(np.median(self.of[own])),
                    why=ExposureReason(int(self.why[first])),
                    calls=len(own),
                    bytes=int(np.median(bytes_[own])),
                    time_ns=int(length[own].sum()),
                    exposed_ns=int(self.exposed_ns[own].sum()),
                    event=int(self.calls.event[most]),
                    late_in=int(self.late_in[most]),
                )
            )
        return sorted(found, key=lambda one: (-one.exposed_ns, -one.time_ns, one.unit, one.number))


def exposure_on_device(
    host: Host,
    calls: CollectiveCalls,
    busy: Busy,
    work: Work,
    window: Window,
    borders_ns: Int64,
    spans: CauseSpans,
) -> CollectiveExposure:
    """Find the exposure of a device's collectives.

    calls: on_device's. borders_ns: of the steps on the device. spans: what the main thread did."""
    launch = work.origin[np.searchsorted(work.event, calls.event)]
    exposed = exposed_communication(busy, window)
    exposed_ns = coverage(exposed, calls.start_ns, calls.end_ns)
    seen = _seen(host, calls, launch, exposed_ns, longer_ns(host, calls), borders_ns)
    why, late_in = why_on_device(host, seen, busy, work, exposed, spans)
    return CollectiveExposure(**vars(seen), why=why, late_in=late_in)


def exposure_on_cpu(
    host: Host, calls: CollectiveCalls, steps_ns: Int64, spans: CauseSpans
) -> CollectiveExposure:
    """Find the exposure of the collectives of a job on the CPU: the main thread waits, and does nothing else.

    calls: on_cpu's. steps_ns: when the steps begin. spans: what the main thread did."""
    launch = np.where(calls.call == NONE, calls.event, calls.call)
    works = spans.cause != Cause.COLLECTIVE
    working = union(spans.start_ns[works], spans.end_ns[works])
    exposed_ns = calls.end_ns - calls.start_ns - coverage(working, calls.start_ns, calls.end_ns)
    # Back ends share the cores with what computes: the shortest of equal messages is not the usual one.
    longer = longer_ns(host, calls, than_median=True)
    seen = _seen(host, calls, launch, exposed_ns, longer, steps_ns)
    nowhere = np.full(len(calls), NONE, np.int64)
    return CollectiveExposure(**vars(seen), why=why_on_cpu(host, seen), late_in=nowhere)


def _seen(
    host: Host, calls: CollectiveCalls, launch: Int64, exposed_ns: Int64, longer: Int64, borders_ns: Int64
) -> SeenCollectives:
    launched = collective_launches(host, calls.event, launch)
    module = np.where(launch == NONE, NONE, host.module[launch]) if len(launch) else launch
    units = [
        (fsdp_unit(mark) or ROOT) if caller == FSDP and "::" in mark else module_label(host.name(around))
        for mark, caller, around in zip(launched.annotation, launched.caller, module.tolist(), strict=True)
    ]
    step = np.searchsorted(borders_ns, calls.start_ns, side="right")
    number, of = _places(step, numbered(calls.kind), numbered(launched.caller))
    callers = launched.annotation, launched.caller
    return SeenCollectives(calls, launch, exposed_ns, longer, *callers, units, number, of)


def _places(*columns: Int64) -> tuple[Int64, Int64]:
    """Return the place of each row among those that are equal, from 1, and how many these are."""
    group, _ = groups(*columns)
    order = np.argsort(group, kind="stable")
    count = np.bincount(group) if len(group) else group
    first = np.cumsum(count) - count
    place = np.empty(len(group), np.int64)
    place[order] = np.arange(len(group)) - first[group[order]] + 1
    return place, count[group].astype(np.int64) if len(group) else group


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
