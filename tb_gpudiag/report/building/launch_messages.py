"""Launch hotspots and launch queues for the Report."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.launching.hotspots import KINDS, Hotspot
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import UINT32_MAX, time_ranges, us
from tb_gpudiag.trace.events import NONE
from tb_gpudiag.wording.format import one_line

HOTSPOTS_LIMIT = 100
"""Of each kind: the page orders and searches them."""

QUEUES_LIMIT = 64


def hotspot_messages(facts: Facts) -> list[pb.LaunchHotspot]:
    """Of each kind, those that caused most idle time first."""
    return [_hotspot(facts, spot) for kind in KINDS for spot in facts.hotspots(kind)[:HOTSPOTS_LIMIT]]


def _hotspot(facts: Facts, spot: Hotspot) -> pb.LaunchHotspot:
    steps = len(facts.steps)
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


def queue_messages(facts: Facts) -> list[pb.LaunchQueue]:
    """Of the streams that something was launched on, or waited on, in the step window: most launches
    first."""
    costs, window = facts.launch_costs, facts.window
    if not window.duration_ns:
        return []
    waited = np.zeros(len(facts.events), np.int64)
    waited[costs.event] = costs.full_queue_ns
    in_window = np.zeros(len(facts.events), np.bool_)
    in_window[costs.event] = True
    found = []
    for queue in facts.queues:
        calls = queue.call[queue.call != NONE]
        calls, figures = calls[in_window[calls]], queue.figures(window)
        if not (len(calls) or figures.most):
            continue
        found.append(
            pb.LaunchQueue(
                device=queue.device,
                stream=queue.stream,
                launches=len(calls),
                mean_depth=figures.mean,
                median_depth=min(figures.median, UINT32_MAX),
                most_depth=min(figures.most, UINT32_MAX),
                empty_share=figures.empty_share,
                full_queue_launches=int((waited[calls] > 0).sum()),
                full_queue_us=us(waited[calls].sum()),
                not_launched_here=min(queue.not_launched_here, UINT32_MAX),
            )
        )
    return sorted(found, key=lambda message: -message.launches)[:QUEUES_LIMIT]
