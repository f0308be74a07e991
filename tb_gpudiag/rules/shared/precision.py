"""What other number formats save: the gain of tensor cores, and of moving fewer bytes."""

from __future__ import annotations

from tb_gpudiag.arrays import Bool
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.facts.kernels.peaks import Peaks
from tb_gpudiag.rules.shared.kernel_time import KernelTime

# A kernel that waits for memory takes half as long with numbers of half the size.
HALF_THE_BYTES = 0.5


def tf32_saving_ns(time_ns: int, peaks: Peaks | None) -> int:
    """Time that FP32 matmuls of this length save as TF32, at the stated peaks; 0 if TF32 is not faster."""
    if peaks is None or peaks.tf32 <= peaks.fp32:
        return 0
    return round(time_ns * (1 - peaks.fp32 / peaks.tf32))


def half_saving_ns(time: KernelTime, fp32: Bool, matmul_ns: int, peaks: Peaks | None) -> tuple[int, int]:
    """Time that 16-bit formats save: on FP32 matmuls, and on kernels that move half the bytes.

    fp32: mask of the FP32 matmuls, shape (k,). matmul_ns: their time, not counting what is claimed.
    """
    ratio = 0.0 if peaks is None else peaks.fp32 / peaks.half
    others_ns = time.total_ns(_moves_fewer_bytes(time.kernels) & ~fp32)
    return round(matmul_ns * (1 - ratio)), round(others_ns * HALF_THE_BYTES)


def fp64_saving_ns(time_ns: int, peaks: Peaks | None) -> int:
    """Time that FP64 kernels save as FP32: at most by the ratio of the peaks, or half of it for the bytes."""
    ratio = (
        HALF_THE_BYTES if peaks is None or not peaks.fp64 else min(peaks.fp64 / peaks.fp32, HALF_THE_BYTES)
    )
    return round(time_ns * (1 - ratio))


def _moves_fewer_bytes(kernels: Kernels) -> Bool:
    """Mask of kernels with 32-bit numbers, except those that update weights: these stay in FP32."""
    chosen: Bool = kernels.shortens & kernels.is_kernel
    return chosen
