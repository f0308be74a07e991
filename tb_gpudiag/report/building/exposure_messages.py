"""Messages on collectives: what each is for, and why it is exposed."""

from __future__ import annotations

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import longest
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.kernels.exposure import CollectiveExposure, UnitExposure
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import UINT32_MAX, time_ranges, us
from tb_gpudiag.wording.format import one_line
from tb_gpudiag.wording.kinds import unit_text

EXPOSED_LIMIT = 200
"""Rows. A model of a hundred layers has some hundred, and the page sorts them."""


def exposure_messages(
    exposure: CollectiveExposure, host: Host, device: DeviceFacts | None
) -> list[pb.ExposedCollectives]:
    """Collectives by kind, unit and reason, the most exposed first."""
    return [_message(one, exposure, host, device) for one in exposure.by_unit[:EXPOSED_LIMIT]]


def _message(
    one: UnitExposure, exposure: CollectiveExposure, host: Host, device: DeviceFacts | None
) -> pb.ExposedCollectives:
    at = exposure.calls.event == one.event
    ranges = longest(
        exposure.calls.start_ns[at], exposure.calls.end_ns[at], NONE if device is None else device.id
    )
    place = host.frame(int(host.place[one.late_in])) if one.late_in != NONE else None
    return pb.ExposedCollectives(
        kind=one.kind,
        parallelism=one.parallelism,
        unit=one_line(unit_text(one.parallelism, one.unit, one.number, one.of)),
        why=one.why.name.lower(),
        calls=min(one.calls, UINT32_MAX),
        bytes=max(0, one.bytes),
        us=us(one.time_ns),
        exposed_us=us(one.exposed_ns),
        late_in=one_line(str(place) if place is not None else host.name(one.late_in)),
        ranges=time_ranges(ranges),
    )
