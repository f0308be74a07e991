"""GD509: kernels that compute with 64-bit numbers."""

from __future__ import annotations

from dataclasses import replace

from tb_gpudiag.facts.kernels.peaks import Peaks
from tb_gpudiag.rules.answer import Evidence, Finding, Severity
from tb_gpudiag.rules.rule import GpuRule, page_fixes, speaks_from
from tb_gpudiag.rules.shared.kernel_time import HALF_THE_BYTES, KernelPart, of_kernels
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.quantity import number, throughput

FIXES = page_fixes(__name__)

# Public traces spend at most 0.6% of the window here: metrics and counters in FP64. More is a model or data
# that became FP64 unnoticed, or is meant to be.
LEAST_SHARE = levels.NOTICEABLE

# Where other kernels take most of the time, a value became FP64 unnoticed. As FP32 these kernels surely save
# this much: half of their bytes, less what converts the values.
MOSTLY = levels.HALF
LEAST_SAVED = levels.LARGE

# GPUs for scientific computing have at least half of the FP32 rate for FP64, all others a 32nd or a 64th.
SLOW = 1 / 16


def _finding(fp64: KernelPart) -> Finding:
    time, chosen, cost_ns = fp64.time, fp64.chosen, fp64.free.total
    peaks = time.device.peaks
    slow = ""
    if peaks is not None and peaks.fp64 <= SLOW * peaks.fp32:
        slow = f"This GPU {'may compute' if peaks.assumed else 'computes'} FP64 at a "
        slow += f"{round(peaks.fp32 / peaks.fp64)}th of its FP32 rate. "
    unnoticed = time.total_ns(chosen) < MOSTLY * int(time.kernels.duration_ns.sum())
    removable = time.saving(chosen, fp64_saving_ns(cost_ns, peaks))
    if unnoticed:
        removable = replace(removable, least=time.shorter((chosen, LEAST_SAVED)))
    return Finding(
        title=f"FP64 kernels take {fp64.of_window} of the time",
        summary="These kernels compute with 64-bit numbers, which move twice the bytes of FP32. "
        f"{slow}Neural networks do not need FP64: a NumPy array usually brought it in.",
        fix=FIXES["convert"],
        removable=removable,
        evidence=[
            time.evidence("FP64 kernels", cost_ns),
            Evidence("Kernels", number(int(chosen.sum()))),
            time.evidence("FP64 matmuls", time.total_ns(chosen & time.kernels.matrix)),
            *_rates(peaks),
        ],
        **fp64.where,
        severity=None if slow or unnoticed else Severity.INFO,  # GPUs with fast FP64 are bought for it
    )


def fp64_saving_ns(time_ns: int, peaks: Peaks | None) -> int:
    """Time that FP64 kernels save as FP32: at most by the ratio of the peaks, or half of it for the bytes."""
    ratio = (
        HALF_THE_BYTES if peaks is None or not peaks.fp64 else min(peaks.fp64 / peaks.fp32, HALF_THE_BYTES)
    )
    return round(time_ns * (1 - ratio))


def _rates(peaks: Peaks | None) -> list[Evidence]:
    if peaks is None:
        return []
    return [
        *Evidence.some("Peaks assumed of", peaks.assumed),
        Evidence("Stated FP64 peak", throughput(peaks.fp64)),
        Evidence("Stated FP32 peak", throughput(peaks.fp32)),
    ]


# Kernels whose names say FP64.
_CHECK = speaks_from(
    LEAST_SHARE,
    of_kernels(lambda time: time.kernels.fp64),
    lambda fp64: f"FP64 kernels take {fp64.of_window} of the step window",
    _finding,
)

RULE = GpuRule("GD509", "fp64_kernels", "FP64 kernels", _CHECK)
