"""The roofline: the busiest device's operators by what they compute for each byte, and the device's peaks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.peaks import Peaks
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.prepared import NS_PER_US, Prepared, pack_meta, read_meta
from tb_gpudiag.vocabulary.kernel_families import Family

MOST_POINTS = 500
"""Operators with the most time. Models have some tens to hundreds."""


def prepare_roofline(facts: Facts) -> tuple[dict[str, npt.NDArray[Any]], Int64]:
    """Return the arrays, and the index of each piece of GPU work's operator in them, or NONE."""
    work = facts.work
    of_work = np.full(len(work), NONE, np.int64)
    device = facts.device
    if device is None:
        none = np.zeros(0)
        empty = pack_meta({"points": []})
        return {
            "roofline_meta": empty,
            "rate_operations": none,
            "rate_bytes": none,
            "rate_least": none,
        }, of_work
    found, kernels = device.roofline, device.kernels
    of_work[np.searchsorted(work.event, kernels.event)] = found.operator
    family = _families(found.operator, kernels.family, kernels.duration_ns, len(found.operators))
    meta: dict[str, Any] = {
        "device": device.id,
        "device_name": device.name,
        "peaks": _peaks(found.peaks),
        "bandwidth": found.peaks.bandwidth if found.peaks else 0,
        "assumed": found.peaks.assumed if found.peaks else "",
        "left_out": max(0, len(found.operators) - MOST_POINTS),
        "points": [
            [
                item.operator[:300],
                item.shapes,
                item.number,
                Family(of).label,
                item.calls,
                item.time_ns,
                float(item.operations),
                float(item.bytes),
                item.reached,
            ]
            for item, of in zip(found.operators[:MOST_POINTS], family.tolist(), strict=False)
        ],
    }
    time = np.array([item.time_ns for item in found.operators], np.float64)
    arrays: dict[str, npt.NDArray[Any]] = {
        "roofline_meta": pack_meta(meta),
        # For each ns of the operator's kernels.
        "rate_operations": np.array([float(item.operations) for item in found.operators]) / time,
        "rate_bytes": np.array([float(item.bytes) for item in found.operators]) / time,
        "rate_least": np.array([item.least_ns for item in found.operators]) / time,
    }
    return arrays, of_work


def _families(
    operator: Int64, family: npt.NDArray[np.uint8], duration_ns: Int64, number: int
) -> npt.NDArray[np.intp]:
    """Return the family that takes most of each operator's time."""
    time = np.zeros((number, len(Family)))
    known = operator != NONE
    np.add.at(time, (operator[known], family[known]), duration_ns[known])
    return time.argmax(axis=1) if number else np.zeros(0, np.intp)


def _peaks(peaks: Peaks | None) -> list[tuple[str, float]]:
    """Return the peaks of number formats that the device has, the highest first."""
    if peaks is None:
        return []
    named = {
        "FP8": peaks.fp8,
        "FP16 and BF16": peaks.half,
        "TF32": peaks.tf32,
        "FP32": peaks.fp32,
        "FP64": peaks.fp64,
    }
    return sorted(((name, rate) for name, rate in named.items() if rate), key=lambda pair: -pair[1])


def slice_roofline(prepared: Prepared) -> pb.RooflinePlot:
    """Return the roofline plot of the trace; without points if no input shapes are known."""
    meta = read_meta(prepared, "roofline_meta")
    plot = pb.RooflinePlot()
    if not meta["points"]:
        return plot
    plot.device, plot.device_name = meta["device"], meta["device_name"]
    plot.assumed, plot.bandwidth, plot.more_points = meta["assumed"], meta["bandwidth"], meta["left_out"]
    for name, rate in meta["peaks"]:
        plot.peaks.add(name=name, teraflops=rate)
    for operator, shapes, number, family, calls, time_ns, operations, moved, reached in meta["points"]:
        plot.points.add(
            operator=operator,
            shapes=shapes,
            number=number,
            family=family,
            calls=calls,
            us=time_ns / NS_PER_US,
            operations=operations,
            bytes=moved,
            reached=reached,
        )
    return plot
