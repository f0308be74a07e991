"""Memory of each device."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.floor import evenly
from tb_gpudiag.facts.memory.peak import Owner
from tb_gpudiag.facts.memory.sites import GrowingSite
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import message_of, place, us
from tb_gpudiag.rules.answer import place_at
from tb_gpudiag.rules.shared.growth import floor_state, until_full
from tb_gpudiag.trace.events import Events
from tb_gpudiag.wording.format import one_line

FLOORS_LIMIT = 2_000
"""If there are more floors, evenly spaced ones are listed."""

SITES_LIMIT = 50
OWNERS_LIMIT = 100
RANGES_LIMIT = 20
FRAMES_LIMIT = 40
FAILURES_LIMIT = 20


def memory_messages(devices: Iterable[DeviceMemory], events: Events) -> list[pb.DeviceMemory]:
    """Memory of each device, every list bounded."""
    return [_device(memory, events) for memory in devices]


def _device(memory: DeviceMemory, events: Events) -> pb.DeviceMemory:
    peak, trend = memory.peak, memory.trend
    names = ("segments", "largest_free_bytes", "free_in_used_segments_bytes")
    of_segments = {
        name: getattr(memory.reserve.segments, name) if memory.reserve.segments else 0 for name in names
    }
    return message_of(
        pb.DeviceMemory,
        memory,
        relative=memory.curve.relative,
        start_bytes=memory.curve.start_bytes,
        peak_us=us(peak.at_ns),
        peak_phase=peak.phase.label,
        reserved_at_peak_bytes=max(0, peak.reserved_at_peak_bytes),
        peak_owners=[_owner(owner) for owner in peak.owners[:OWNERS_LIMIT]],
        peak_kinds=[
            pb.MemoryKind(kind=kind.value, bytes=size)
            for kind, size in sorted(peak.kinds.items(), key=lambda one: -one[1])
        ],
        floors=[
            pb.MemoryFloor(
                name=one_line(memory.floors.periods.names[i]),
                us=us(memory.floors.at_ns[i]),
                bytes=int(memory.floors.bytes[i]),
                excused=bool(memory.floors.excused[i]),
            )
            for i in evenly(np.arange(len(memory.floors), dtype=np.int64), FLOORS_LIMIT)
        ],
        sites=[_site(site, memory.device, events) for site in memory.sites[:SITES_LIMIT]],
        reserve=message_of(pb.MemoryReserve, memory.reserve, **of_segments),
        segments=[
            message_of(pb.MemorySegment, segment, address=f"{segment.address:#x}")
            for segment in (memory.reserve.segments.each if memory.reserve.segments is not None else [])
        ],
        steps_until_full=until_full(memory),
        trend=message_of(
            pb.FloorTrend,
            trend,
            bytes_per_step=trend.per_unit,
            low_bytes_per_step=trend.low,
            high_bytes_per_step=trend.high,
            state=floor_state(memory) or "",
        )
        if trend
        else None,
        floor_slope_bytes_per_step=trend.per_unit if trend and trend.unit == "step" else 0.0,
        failures=_failures(memory),
    )


def _failures(memory: DeviceMemory) -> list[pb.MemoryFailure]:
    """The last allocations that failed."""
    events, context = memory.allocations.memory, memory.allocations.context
    failed = memory.curve.event[memory.allocations.failures[-FAILURES_LIMIT:]].tolist()
    sizes = [max(0, int(events.bytes[i])) for i in failed]
    return [
        pb.MemoryFailure(
            us=us(events.time_ns[i]),
            requested_bytes=requested,
            place=place(place_at(context.frame(i), operator=context.host.name(int(context.operator[i])))),
        )
        for i, requested in zip(failed, sizes, strict=True)
    ]


def _owner(owner: Owner) -> pb.MemoryOwner:
    where = place(place_at(owner.frame, operator=owner.operator))
    return message_of(pb.MemoryOwner, owner, kind=owner.kind.value, place=where)


def _site(site: GrowingSite, device: int, events: Events) -> pb.MemorySite:
    frames = site.stack.split("\n")[-FRAMES_LIMIT:]
    # Events of the site's allocations, evenly spaced; without an event, the time of the allocation.
    ranges = []
    for i in evenly(np.arange(len(site.times_ns), dtype=np.int64), RANGES_LIMIT):
        start = end = site.times_ns[i]
        if site.events[i] != NONE:
            start, end = events.start_ns[site.events[i]], events.end_ns[site.events[i]]
        ranges.append(pb.TimeRange(start_us=us(start), end_us=us(end), device=device))
    return message_of(
        pb.MemorySite,
        site,
        stack="\n".join(one_line(frame) for frame in frames),
        bytes_per_step=site.per_unit,
        place=place(place_at(site.frame, operator=site.operator)),
        ranges=ranges,
    )
