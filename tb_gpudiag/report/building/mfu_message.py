"""MFU on the wire: the parts of the peak, the operators that lose most of it, and all of it in one line."""

from __future__ import annotations

from tb_gpudiag.facts.kernels.mfu import Mfu, Missing, PeakPart
from tb_gpudiag.facts.kernels.roofline import OperatorTime, Roofline
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.time_messages import STEPS_LIMIT
from tb_gpudiag.report.building.units import message_of, us
from tb_gpudiag.report.essentials import peak_text
from tb_gpudiag.rules.shared.roofline_evidence import tensors
from tb_gpudiag.wording.format import in_quotes, share
from tb_gpudiag.wording.quantity import throughput
from tb_gpudiag.wording.vocabulary import MFU_PARTS

OPERATORS_LIMIT = 20
"""Operators by the time that they take beyond their roofline."""

# Smaller parts are in the account, not in the sentence; and so much unknown time makes an MFU "at least".
_LEAST_SAID = 0.01


def mfu_message(found: Mfu, roofline: Roofline, steps: int) -> pb.Mfu | None:
    """Write the message. steps: number of steps in the window. None where nothing multiplies matrices."""
    if found.missing == Missing.MATMULS or not found.window_ns:
        return None
    at_least = found.share(PeakPart.UNKNOWN) >= _LEAST_SAID
    assumed = roofline.peaks.assumed if found.peak and roofline.peaks is not None else ""
    message = pb.Mfu(
        missing=found.missing.label,
        mfu=found.share(PeakPart.MODEL),
        hfu=found.share(PeakPart.MODEL, PeakPart.RECOMPUTED),
        at_least=at_least,
        computes_in=found.computes_in,
        peak_teraflops=found.peak,
        assumed=assumed,
        model_teraflops=found.operations / found.window_ns / 1e3,
        step_operations=found.operations / steps if steps else 0,
        recomputing_us=us(found.recomputing_ns),
        parts=_parts(found),
        operators=_operators(roofline),
        steps=found.by_step[:STEPS_LIMIT],
    )
    message.sentence = _cannot_tell(found) if found.missing else _sentence(found, message)
    return message


def _parts(found: Mfu) -> list[pb.MfuPart]:
    """Parts that take time, from the peak down. Idle time has a part for each cause."""
    causes = [("idle", cause.label, ns) for cause, ns in found.idle_ns.items()]
    others = [(part.label, "other", ns) for part, ns in found.parts_ns.items() if part != PeakPart.IDLE]
    return [
        pb.MfuPart(part=part, cause=cause, us=us(ns), share=ns / found.window_ns)
        for part, cause, ns in [*causes, *others]
        if found.parts_ns and ns > 0
    ]


def _sentence(found: Mfu, message: pb.Mfu) -> str:
    lost = [
        f"{MFU_PARTS[part.label].noun} {share(found.share(part))}"
        for part in PeakPart
        if part != PeakPart.MODEL and found.share(part) >= _LEAST_SAID
    ]
    figure = f"MFU {'at least ' if message.at_least else ''}{share(message.mfu)} of {peak_text(message)}"
    above = found.above_peak_ns >= _LEAST_SAID * found.window_ns
    exceeded = " Some operators are faster than the stated peak, and count as at the peak." if above else ""
    return f"{figure}{': ' if lost else ''}{', '.join(lost)}.{exceeded}"


def _cannot_tell(found: Mfu) -> str:
    if found.missing == Missing.SHAPES:
        return "MFU: cannot tell without input shapes. Record with record_shapes=True."
    reached = throughput(found.operations / found.window_ns / 1e3)
    if found.missing == Missing.PEAK:
        return f"MFU: cannot tell, because the peak of this GPU is not known. Its matmuls reach {reached}."
    names = " and ".join(in_quotes(name, 60) for name in found.unknown)
    what = f", such as {names}" if names else ""
    return (
        f"MFU: cannot tell, because kernels whose FLOPs are not known{what}, take "
        f"{share(found.unknown_ns, found.window_ns)} of the step window, longer than those with known FLOPs."
    )


def _operators(roofline: Roofline) -> list[pb.OperatorRate]:
    rated = [_rate(found) for found in roofline.operators if found.time_ns > 0]
    return sorted(rated, key=lambda rate: (-rate.lost_us, -rate.us))[:OPERATORS_LIMIT]


def _rate(found: OperatorTime) -> pb.OperatorRate:
    return message_of(
        pb.OperatorRate,
        found,
        shapes=tensors(found.shapes),
        us=us(found.time_ns),
        teraflops=found.operations / found.time_ns / 1e3,
        terabytes=found.bytes / found.time_ns / 1e3,
        lost_us=us(max(0.0, found.time_ns - found.least_ns)) if found.least_ns else 0,
    )
