"""The waits for the GPU, by call site, for the Report."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.sync_sites import sync_sites
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import UINT32_MAX, place, time_ranges, us
from tb_gpudiag.rules.rule import Place

SITES_LIMIT = 20


def sync_site_messages(facts: Facts) -> list[pb.SyncSite]:
    """Of the busiest device; none without one."""
    device = facts.device
    if device is None:
        return []
    blocking = facts.host_time.blocking
    sites = sync_sites(facts.host, facts.transfers, blocking, device.id, device.ledger, facts.window)
    found = []
    for site in sites[:SITES_LIMIT]:
        frame = facts.host.frame(site.place)
        where = (
            Place(operator=site.operator, time_ns=site.refill_ns)
            if frame is None
            else Place(frame.file, frame.line, frame.function, site.operator, site.refill_ns)
        )
        found.append(
            pb.SyncSite(
                kind=site.kind.label,
                place=place(where),
                count=min(site.count, UINT32_MAX),
                held_us=us(site.held_ns),
                refill_us=us(site.refill_ns),
                ranges=time_ranges(site.ranges),
            )
        )
    return found
