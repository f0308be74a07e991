"""What tables of several recordings show of a record in an event file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence

import numpy as np

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import dump, to_dict
from tb_gpudiag.wording.format import count


def record_row(report: pb.Report) -> pb.RunRow:
    """Return the row of a recording in the table of runs."""
    low, middle, high = _quartiles(report)
    first = report.findings[0] if report.findings else pb.Finding()
    return pb.RunRow(
        run=report.trace.run,
        kind="record",
        worker=report.trace.worker,
        ranks=1,
        recordings=1,
        step_us=middle,
        low_step_us=low,
        high_step_us=high,
        busy_share=report.verdict.busy_share,
        account=_account(report),
        limiter=report.verdict.limiter,
        sentence=report.verdict.sentence,
        first_rule=first.rule,
        first_title=first.title,
        saving_share=first.saving.high_share,
        memory_share=max(
            (m.peak_reserved_bytes / m.capacity_bytes for m in report.memory if m.capacity_bytes > 0),
            default=0.0,
        ),
        severity=first.severity,
    )


def record_point(report: pb.Report) -> pb.HistoryPoint:
    """Return the point of a recording in the history of its run, without id and time."""
    low, middle, high = _quartiles(report)
    first = report.findings[0] if report.findings else pb.Finding()
    device = _busiest(report)
    window_us = device.window_us if device is not None else 0.0
    memory = [m for m in report.memory if m.device >= 0]
    largest = max(memory, key=lambda m: m.peak_allocated_bytes, default=pb.DeviceMemory())
    floors = [floor.bytes for floor in largest.floors if not floor.excused]
    return pb.HistoryPoint(
        worker=report.trace.worker,
        span=report.trace.span,
        rank=report.trace.rank,
        step_us=middle,
        low_step_us=low,
        high_step_us=high,
        steps=len(report.steps),
        busy_share=report.verdict.busy_share,
        # The record has the window's account: of a step, it has the same share.
        shares=[
            pb.CauseTime(cause=part.cause, us=part.us / window_us * middle)
            for part in _account(report)
            if window_us and middle
        ],
        floor_bytes=float(np.median(floors)) if floors else 0,
        peak_bytes=largest.peak_allocated_bytes,
        limiter=report.verdict.limiter,
        rules=[finding.rule for finding in report.findings],
        saving_us=first.saving.high_per_step_us,
        title=first.title,
        severity=max((finding.severity for finding in report.findings), default=0),
        device_name=device.name if device is not None else "",
        record=True,
    )


def history_with(answer: bytes | None, run: str, points: Sequence[pb.HistoryPoint]) -> bytes:
    """Return the HistoryState of a run's traces with those of its recordings that have a record only.

    answer: of the traces, as gzipped JSON; None without traces. As there, one rank is shown.
    """
    # As plain data: parsing thousands of points as messages takes a second.
    if answer is None:
        empty = pb.History(schema_version=1, run=run)
        state = to_dict(pb.HistoryState(state="ready", progress=1.0, history=empty))
        rank = min(point.rank for point in points)
    else:
        state = json.loads(gzip.decompress(answer))
        shown = state["history"]["points"]
        rank = shown[0]["rank"] if shown else -1
    history = state["history"]
    own = [to_dict(point) for point in points if point.rank == rank]
    merged = [*history["points"], *own]
    order = sorted(range(len(merged)), key=lambda index: merged[index]["time_s"])
    for change in history["changes"]:
        change["point"] = order.index(change["point"])
    history["points"] = [merged[index] for index in order]
    if own:
        history["notes"].append(
            f"{count(len(own), 'recording')} without a trace: the points are from records in event files. "
            "Changes and growth of memory are looked for among traces only."
        )
    return gzip.compress(dump(state).encode("utf-8", "replace"), compresslevel=6, mtime=0)


def _busiest(report: pb.Report) -> pb.Device | None:
    devices = [device for device in report.devices if device.window_us > 0]
    return max(devices, key=lambda device: device.window_us - device.window_idle_us, default=None)


def _account(report: pb.Report) -> list[pb.CauseTime]:
    """Return the parts of the busiest GPU's step window; none without a GPU."""
    device = _busiest(report)
    if device is None:
        return []
    work = {
        "computing": device.window_computing_us,
        "copying": device.window_copying_us,
        "communicating": device.window_communicating_us,
    }
    parts = [pb.CauseTime(cause=part, us=us) for part, us in work.items() if us]
    return [*parts, *device.window_idle_by_cause]


def _quartiles(report: pb.Report) -> tuple[float, float, float]:
    if not report.steps:
        return 0.0, 0.0, 0.0
    low, middle, high = np.quantile([step.duration_us for step in report.steps], [0.25, 0.5, 0.75]).tolist()
    return low, middle, high
