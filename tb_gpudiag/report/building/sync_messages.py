"""Synchronizations by call site."""

from __future__ import annotations

from tb_gpudiag.arrays import Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.transfers import Transfers
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.waiting.sync_sites import SyncSite, sync_sites
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import UINT32_MAX, place, time_ranges, us
from tb_gpudiag.rules.rule import place_at

SITES_LIMIT = 20


def sync_site_messages(
    device: DeviceFacts, host: Host, transfers: Transfers, blocking: Int64, window: Window
) -> list[pb.SyncSite]:
    """Call sites that block the host in the step window, most idle time of the device first.

    blocking: indices of the blocking calls.
    """
    sites = sync_sites(host, transfers, blocking, device.id, device.ledger, window)
    return [_site(site, host) for site in sites[:SITES_LIMIT]]


def _site(site: SyncSite, host: Host) -> pb.SyncSite:
    where = place_at(host.frame(site.place), operator=site.operator, time_ns=site.refill_ns)
    return pb.SyncSite(
        kind=site.kind.label,
        place=place(where),
        count=min(site.count, UINT32_MAX),
        held_us=us(site.held_ns),
        refill_us=us(site.refill_ns),
        ranges=time_ranges(site.ranges),
    )
