"""Operators against the roofline, as evidence."""

from __future__ import annotations

import json

from tb_gpudiag.facts.kernels.peaks import Peaks
from tb_gpudiag.facts.kernels.roofline import OperatorTime
from tb_gpudiag.rules.rule import Evidence
from tb_gpudiag.rules.shared.kernel_time import stated_peaks
from tb_gpudiag.wording.format import one_line
from tb_gpudiag.wording.quantity import (
    Quantity,
    bandwidth,
    duration,
    intensity,
    number,
    share_of,
    throughput,
)

# Longer labels leave no room for the figures next to them in a terminal.
_LONGEST_SHAPES = 60


def operator_evidence(found: OperatorTime, reason: str = "") -> Evidence:
    """An operator's time, rate and share of the roofline, and why it is slow, if that is known."""
    rates: tuple[Quantity, ...]
    if found.operations:
        limit = "compute-bound" if found.arithmetic_ns >= found.memory_ns else "memory-bound"
        rates = (
            throughput(found.operations / found.time_ns / 1e3),
            share_of(found.reached, 1.0, "of the roofline"),
            intensity(found.operations / found.bytes, f"({limit})"),
        )
    else:
        rates = (bandwidth(found.bytes / found.time_ns), share_of(found.reached, 1.0, "of the bandwidth"))
    return Evidence(
        f"{found.operator} {_tensors(found.shapes)}, {found.number}",
        duration(found.time_ns),
        (number(found.calls, "call"), *rates, *([reason] if reason else [])),
    )


def _tensors(shapes: str) -> str:
    """The shapes of an operator's tensors, without its other inputs."""
    tensors = [dims for dims in json.loads(shapes) if dims]
    return one_line(json.dumps(tensors, separators=(",", ":")), _LONGEST_SHAPES)


def achieved(found: OperatorTime) -> str:
    """The rate of an operator as text, such as `4.0 TFLOP/s and 127 GB/s`."""
    memory = str(bandwidth(found.bytes / found.time_ns))
    return (
        f"{throughput(found.operations / found.time_ns / 1e3)} and {memory}" if found.operations else memory
    )


def peak_evidence(peaks: Peaks) -> list[Evidence]:
    """The stated peaks of matmuls and memory."""
    return [*stated_peaks(peaks), Evidence("Stated memory bandwidth", bandwidth(peaks.bandwidth * 1e3))]
