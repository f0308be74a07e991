"""Launch hotspots and launch queues."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.queue_depth import Queue
from tb_gpudiag.facts.launching.launch_costs import Hotspot, LaunchCosts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import UINT32_MAX, time_ranges, us
from tb_gpudiag.wording.format import one_line

HOTSPOTS_LIMIT = 100
"""Hotspots of each kind. The page sorts and searches them."""

QUEUES_LIMIT = 64


def hotspot_messages(by_kind: Iterable[list[Hotspot]], steps: int) -> list[pb.LaunchHotspot]:
    """Hotspots of each kind, most idle time first. `steps` is the number of recorded steps."""
    return [_hotspot(spot, steps) for spots in by_kind for spot in spots[:HOTSPOTS_LIMIT]]


def _hotspot(spot: Hotspot, steps: int) -> pb.LaunchHotspot:
    return pb.LaunchHotspot(
        key=one_line(spot.key),
        kind=spot.kind,
        launches=spot.launches,
        host_us=us(spot.host_ns),
        kernel_us=us(spot.kernel_ns),
        empty_queue_share=spot.empty_queue_share,
        idle_us=us(spot.idle_ns),
        dispatch_us=us(spot.dispatch_ns),
        python_us=us(spot.python_ns),
        idle_per_step_us=us(spot.idle_ns / steps) if steps else 0.0,
        full_queue_launches=spot.full_queue_launches,
        full_queue_us=us(spot.full_queue_ns),
        ranges=time_ranges(spot.ranges),
    )


def queue_messages(queues: Iterable[Queue], costs: LaunchCosts, window: Window) -> list[pb.LaunchQueue]:
    """Queues of the streams that were used in the step window, most launches first."""
    if not window.duration_ns:
        return []
    messages = [_queue(queue, costs, window) for queue in queues]
    used = [message for message in messages if message.launches or message.most_depth]
    return sorted(used, key=lambda message: -message.launches)[:QUEUES_LIMIT]


def _queue(queue: Queue, costs: LaunchCosts, window: Window) -> pb.LaunchQueue:
    figures = queue.figures(window)
    # Costs are those of the launches in the step window, so this finds the queue's launches there.
    _, _, launched = np.intersect1d(queue.call, costs.event, return_indices=True)
    blocked_ns = costs.full_queue_ns[launched]
    return pb.LaunchQueue(
        device=queue.device,
        stream=queue.stream,
        launches=len(launched),
        mean_depth=figures.mean,
        median_depth=min(figures.median, UINT32_MAX),
        most_depth=min(figures.most, UINT32_MAX),
        empty_share=figures.empty_share,
        full_queue_launches=int((blocked_ns > 0).sum()),
        full_queue_us=us(blocked_ns.sum()),
        not_launched_here=min(queue.not_launched_here, UINT32_MAX),
    )
