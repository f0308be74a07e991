"""GD501: FP32 matmuls on CUDA cores while the GPU's tensor cores are unused."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import Bool
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.facts.kernels.peaks import Peaks
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, Fix, Removable, RuleAnswer, Severity
from tb_gpudiag.rules.rule import GpuRule, fix_code, speaks_from
from tb_gpudiag.rules.shared.kernel_time import (
    HALF_THE_BYTES,
    LESS_TO_MOVE,
    KernelPart,
    KernelTime,
    of_kernels,
)
from tb_gpudiag.rules.shared.roofline_evidence import stated_peaks
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.kernel_families import Arithmetic, Family
from tb_gpudiag.vocabulary.kernel_names import AMPERE, WITHOUT_TENSOR_CORES
from tb_gpudiag.wording.quantity import duration, number, share_of

CODE = fix_code(__name__)

# Public traces of GPUs with TF32 spend at most 0.2% of the window here, traces of Volta 37 to 61%. Below 5% a
# fix hardly changes the step time, and some FP32 is intended (a loss, the last layer).
LEAST_SHARE = levels.NOTICEABLE

# Tensor cores came with compute capability 7.0.
TENSOR_CORES = (7, 0)

# Where the file does not name the GPU, its peaks are not known. Of the listed GPUs with tensor cores, 16 bits
# are twice (GeForce) to 16 times (A100) as fast as FP32.
MOST_FASTER = 16

# Large matmuls reach 80 to 95% of the stated FP32 peak, and at least half as much of the tensor cores' peak.
LEAST_OF_PEAK = levels.HALF


def _off_tensor_cores(time: KernelTime) -> Bool:
    """Mask of matmul, convolution and attention kernels whose names say FP32 without tensor cores, or bf16 on
    a GPU that multiplies it as FP32."""
    return (time.kernels.matrix & (time.kernels.arithmetic == Arithmetic.FP32_CORES)) | _bf16(time)


def _bf16(time: KernelTime) -> Bool:
    bf16 = time.kernels.matrix & (time.kernels.arithmetic == Arithmetic.BF16_ON_FP32_CORES)
    return bf16 & np.bool_(time.device.multiplies_bf16_as_fp32)


def _finding(part: KernelPart) -> RuleAnswer:
    time, fp32, cost_ns = part.time, part.chosen, part.free.total
    kernels, capability = time.kernels, time.device.compute_capability
    if time.device.properties.architecture:
        return CannotTell("GPUs of AMD are not judged: their matrix cores take FP32, too")
    if capability is None:
        return CannotTell("the trace does not say whether this GPU has tensor cores")
    if capability < TENSOR_CORES or WITHOUT_TENSOR_CORES.search(time.device.name):
        return Clear(f"this GPU (compute capability {capability[0]}.{capability[1]}) has no tensor cores")
    peaks = time.device.peaks
    tf32 = _tf32(capability, peaks)
    tf32_ns = tf32_saving_ns(cost_ns, peaks) if tf32 is not _ABSENT else 0
    matmuls_ns, others_ns = half_saving_ns(time, fp32, cost_ns, peaks)
    tensor = kernels.arithmetic == Arithmetic.TENSOR_CORES
    mostly_bf16 = 2 * time.total_ns(_bf16(time)) > time.total_ns(fp32)
    number_format, why = "FP32", f"{_FP32} {tf32.formats}"
    if mostly_bf16:
        number_format, why = "bf16", _BF16
    return Finding(
        title=f"{part.of_window} of the time goes to {number_format} "
        f"{_operations(kernels, fp32)} that cannot use tensor cores",
        summary=why,
        fix=_fix(tf32, time.facts.job.training, mostly_bf16=mostly_bf16),
        removable=_removable(time, fp32, cost_ns, (tf32_ns, matmuls_ns)),
        evidence=[
            time.evidence("FP32 on CUDA cores", cost_ns),
            Evidence("FP32 kernels", number(int(fp32.sum()))),
            Evidence("FP32 share", share_of(cost_ns, time.total_ns(kernels.matrix), "of the matmul time")),
            time.evidence("On tensor cores", time.total_ns(tensor)),
            *Evidence.some("Saved by TF32 at the stated peaks", duration(tf32_ns)),
            Evidence(
                "Saved by 16 bits at the stated peaks" if peaks else "Saved by 16 bits, at most",
                duration(matmuls_ns),
                ("in these matmuls",),
            ),
            Evidence("Saved by moving half the bytes", duration(others_ns), ("in other FP32 kernels",)),
            *stated_peaks(peaks),
        ],
        **part.where,
        # Older GPUs need FP16, which has risks of its own: a hint, not a warning.
        severity=Severity.INFO.when(tf32 is _ABSENT),
    )


def _tf32(capability: tuple[int, int], peaks: Peaks | None) -> _Tf32:
    """Among GPUs of one compute capability workstation cards double FP32's rate, and GeForce cards do not."""
    if capability < AMPERE:
        return _ABSENT
    if peaks is None:
        return _UNKNOWN
    if peaks.tf32 > peaks.fp32:
        return _FASTER
    return _UNKNOWN if peaks.assumed else _EQUAL


def tf32_saving_ns(time_ns: int, peaks: Peaks | None) -> int:
    """Time that FP32 matmuls of this length save as TF32, at the stated peaks; 0 if TF32 is not faster."""
    if peaks is None or peaks.tf32 <= peaks.fp32:
        return 0
    return round(time_ns * (1 - peaks.fp32 / peaks.tf32))


def half_saving_ns(time: KernelTime, fp32: Bool, matmul_ns: int, peaks: Peaks | None) -> tuple[int, int]:
    """Time that 16-bit formats save: on FP32 matmuls, and on kernels that move half the bytes.

    fp32: mask of the FP32 matmuls, shape (k,). matmul_ns: their time, not counting what is claimed.
    """
    ratio = 1 / MOST_FASTER if peaks is None else peaks.fp32 / peaks.half
    others_ns = time.total_ns(_others(time, fp32))
    return round(matmul_ns * (1 - ratio)), round(others_ns * HALF_THE_BYTES)


def _others(time: KernelTime, fp32: Bool) -> Bool:
    """Mask of the other kernels that 16-bit formats make shorter. None if most matmuls are in another format
    than FP32 already: what else is in 32 bits then was left so on purpose."""
    mostly_fp32 = 2 * time.total_ns(fp32) >= time.total_ns(time.kernels.matrix)
    return time.with_32_bits & ~fp32 & np.bool_(mostly_fp32)


def _removable(time: KernelTime, fp32: Bool, cost_ns: int, saved_ns: tuple[int, int]) -> Removable:
    """What the fix removes: at least of the FP32 matmuls, as TF32; at most also of kernels that move half the
    bytes, in 16 bits. saved_ns: by TF32 and by 16 bits in these matmuls, at the stated peaks."""
    tf32_ns, half_ns = saved_ns
    whole_ns = time.total_ns(fp32)
    least_ns = cost_ns - (cost_ns - tf32_ns) / LEAST_OF_PEAK
    others = _others(time, fp32)
    return Removable(
        time.shorter((fp32, half_ns / whole_ns), (others, HALF_THE_BYTES)),
        least=time.shorter((fp32, max(0.0, least_ns / whole_ns))),
        beyond=LESS_TO_MOVE if others.any() else "",
    )


def _operations(kernels: Kernels, fp32: Bool) -> str:
    """What these kernels compute: "convolutions", "matmuls" or both."""
    convolves = kernels.family[fp32] == Family.CONVOLUTION
    parts = (("convolutions", convolves.any()), ("matmuls", not convolves.all()))
    return " and ".join(name for name, there in parts if there)


class _Tf32(NamedTuple):
    """What TF32 is on a GPU: what is said of its formats, and the fix where it has TF32."""

    formats: str
    fix: str = ""
    code: str = ""
    url: str = ""


_AMP = "https://docs.pytorch.org/docs/stable/amp.html"
_PRECISION = "https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html"
_KEEPS = "TF32 keeps FP32's range and rounds inputs to 10 mantissa bits. bf16 also halves memory traffic."

_ABSENT = _Tf32("On this GPU generation they take FP16, so it needs mixed precision.")
_EQUAL = _Tf32(
    "For TF32 this GPU has the same peak as for FP32. For bf16 it is twice as high, and bf16 also halves "
    "memory traffic.",
    "Use mixed precision",
    CODE["bf16"],
    _AMP,
)
_FASTER = _Tf32(_KEEPS, "Allow TF32, or use mixed precision", CODE["tf32"], _PRECISION)
_UNKNOWN = _FASTER._replace(
    formats=f"TF32 may be faster than FP32 here: this GPU's peaks are not known. {_KEEPS}",
    fix="Try TF32, or use mixed precision",
)

_FP32 = (
    "Matmuls and convolutions run in full FP32 on the CUDA cores. This GPU's tensor cores are faster, but "
    "unused meanwhile."
)
_BF16 = (
    "The tensor cores of this GPU generation take FP16, but not bf16: matmuls in bf16 run on the CUDA cores, "
    "no faster than in FP32."
)


def _fix(tf32: _Tf32, training: bool | None, *, mostly_bf16: bool) -> Fix:
    infers = training is False
    compare = "Compare the results." if infers else "Compare the loss with the previous run."
    if tf32 is _ABSENT:
        what = "float16 instead of bfloat16" if mostly_bf16 else "mixed precision"
        scaled, code = ("", "fp16_inference") if infers else (", with loss scaling", "fp16")
        return Fix(f"Use {what}{scaled}. {compare}", CODE[code], _AMP)
    code = f"{tf32.code}\n\n{CODE['inference']}" if infers else tf32.code
    return Fix(f"{tf32.fix}. {compare}", code, tf32.url)


_CHECK = speaks_from(
    LEAST_SHARE,
    of_kernels(_off_tensor_cores),
    lambda part: f"FP32 matmuls that cannot use tensor cores take {part.of_window} of the step window",
    _finding,
)

RULE = GpuRule("GD501", "fp32_matmul", "FP32 matmuls off the tensor cores", _CHECK)
