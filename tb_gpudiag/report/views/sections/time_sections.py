"""Where time went: on the host, by kernel family, in launches and in synchronizations."""

from __future__ import annotations

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import Cell, Column, Kind, Table, numbers, table
from tb_gpudiag.report.views.sections.place_text import full_place
from tb_gpudiag.wording.format import figures
from tb_gpudiag.wording.kinds import FAMILIES, HOST_KINDS, SYNC_KINDS
from tb_gpudiag.wording.quantity import duration, number, share_of

ROWS_SHOWN = 5
"""Rows of each table. The Report has more."""

QUEUES_SHOWN = 3
"""Rows of the queue table: the stream with most launches, and others on which work waits."""

HARDLY_EVER = 0.01
"""A queue that is empty for all but this share of the step window is not worth a row."""

HOST_COLUMNS = (
    Column("Activity", Kind.CODE),
    Column("Kind"),
    numbers("host_time"),
    Column("Mostly in", Kind.CODE),
)


def host_time(report: pb.Report) -> Table:
    """Activities that took most of the main host thread's time."""
    rows = [
        (
            activity.name,
            HOST_KINDS[pb.HostActivity.Kind.Name(activity.kind)].word,
            duration(activity.us * 1e3),
            # A Python frame is its own place.
            full_place(activity.place)
            if activity.kind != pb.HostActivity.python and activity.place.file
            else "",
        )
        for activity in report.host[:ROWS_SHOWN]
    ]
    return table("host", "Where host time went", HOST_COLUMNS, rows)


FAMILY_COLUMNS = (
    Column("Family"),
    numbers("kernels"),
    numbers("kernel_time"),
    numbers("kernel_share"),
    numbers("tensor_cores"),
)


def kernel_families(report: pb.Report) -> Table:
    """GPU time of the busiest device by kernel family."""
    busiest = report.devices[0].id if report.devices else 0
    rows = [
        (
            FAMILIES[pb.KernelFamily.Family.Name(family.family)].word,
            number(family.kernels),
            duration(family.us * 1e3),
            share_of(family.share, 1),
            share_of(family.tensor_core_us, family.us) if family.tensor_core_us else "",
        )
        for family in report.kernel_families
        if family.device == busiest
    ]
    return table("kernel_families", "GPU time by kernel family", FAMILY_COLUMNS, rows)


HOTSPOT_COLUMNS = (
    Column("Operator", Kind.CODE),
    numbers("launches"),
    numbers("launch_api"),
    numbers("operator_overhead"),
    numbers("gpu_time"),
    numbers("idle_gpu_share"),
    numbers("idle_caused"),
    numbers("idle_per_step"),
)


def launch_hotspots(report: pb.Report) -> Table:
    """Operators whose launches cost most."""
    operators = [spot for spot in report.launch_hotspots if spot.kind == pb.LaunchHotspot.operator]
    rows = [
        (
            spot.key,
            number(spot.launches),
            duration(spot.host_us * 1e3),
            duration(spot.dispatch_us * 1e3),
            duration(spot.kernel_us * 1e3),
            share_of(spot.empty_queue_share, 1),
            duration(spot.idle_us * 1e3),
            duration(spot.idle_per_step_us * 1e3) if report.steps else "",
        )
        for spot in operators[:ROWS_SHOWN]
    ]
    return table("launch_hotspots", "Launches by operator", HOTSPOT_COLUMNS, rows)


QUEUE_COLUMNS = (
    Column("Stream"),
    numbers("launches"),
    numbers("mean_depth"),
    numbers("max_depth"),
    numbers("queue_empty"),
    numbers("blocked_launches"),
    numbers("blocked_time"),
)


def launch_queues(report: pb.Report) -> Table:
    """Launch queues of the most used streams, most launches first."""
    launched = [queue for queue in report.launch_queues if queue.launches]
    others = [queue for queue in launched[1:] if 1 - queue.empty_share >= HARDLY_EVER]
    rows = [_queue(queue) for queue in [*launched[:1], *others][:QUEUES_SHOWN]]
    return table("launch_queues", "Launch queue depth", QUEUE_COLUMNS, rows)


def _queue(queue: pb.LaunchQueue) -> tuple[Cell, ...]:
    blocked = queue.full_queue_launches
    return (
        f"GPU {queue.device} stream {queue.stream}",
        number(queue.launches),
        figures(queue.mean_depth),
        number(queue.most_depth),
        share_of(queue.empty_share, 1),
        number(blocked, "launch", "launches") if blocked else "",
        duration(queue.full_queue_us * 1e3) if blocked else "",
    )


SYNC_COLUMNS = (
    Column("Call"),
    numbers("sync_calls"),
    numbers("host_blocked"),
    numbers("idle_after"),
    Column("At", Kind.CODE),
)


def synchronizations(report: pb.Report) -> Table:
    """Synchronizations after which the GPU was idle. The others cost nothing."""
    rows = [
        (
            SYNC_KINDS[pb.SyncSite.Kind.Name(site.kind)].word,
            number(site.count),
            duration(site.held_us * 1e3),
            duration(site.refill_us * 1e3),
            full_place(site.place),
        )
        for site in report.sync_sites[:ROWS_SHOWN]
        if site.refill_us
    ]
    return table("synchronizations", "Synchronizations", SYNC_COLUMNS, rows)
