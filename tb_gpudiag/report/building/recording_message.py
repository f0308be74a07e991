"""The cost of recording, and the counters that were recorded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tb_gpudiag.facts.core.intervals import Intervals, Window
from tb_gpudiag.facts.waiting.overhead import RecorderCost
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import us
from tb_gpudiag.rules.shared.recording_overhead import LEAST_NS, MOST_NS
from tb_gpudiag.trace.events import Counter
from tb_gpudiag.wording.format import one_line


def recording_cost_message(cost: RecorderCost, window: Window) -> pb.RecordingCost | None:
    """Estimate what recording frames and operators took of the step window; None without frames."""
    whole = Intervals(np.array([window.start_ns]), np.array([window.end_ns]))
    frames = cost.frames(whole)
    if not frames or not window.duration_ns:
        return None
    low_ns = cost.spent_ns(whole, cost.frame_ns or LEAST_NS)
    high_ns = max(low_ns, cost.spent_ns(whole, MOST_NS))
    return pb.RecordingCost(
        frames=frames,
        operators=cost.operators(whole),
        frame_us=us(cost.frame_ns or 0),
        low_us=us(low_ns),
        high_us=us(high_ns),
        low_share=low_ns / window.duration_ns,
        high_share=high_ns / window.duration_ns,
    )


def counter_messages(counters: Sequence[Counter]) -> list[pb.Counter]:
    """Summarize the values of each counter."""
    return [
        pb.Counter(
            name=one_line(counter.name),
            unit=counter.unit,
            device=counter.device,
            samples=len(counter.value),
            least=float(counter.value.min()),
            mean=float(counter.value.mean()),
            most=float(counter.value.max()),
            timed=counter.timed,
        )
        for counter in counters
    ]
