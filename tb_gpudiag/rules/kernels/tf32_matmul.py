"""GD513: matmuls that run as TF32, where 16-bit formats have twice the rate."""

from __future__ import annotations

from tb_gpudiag.rules.answer import Evidence, Finding, Fix, Removable, RuleAnswer, Severity
from tb_gpudiag.rules.rule import GpuRule, fix_code, speaks_from
from tb_gpudiag.rules.shared.kernel_time import HALF_THE_BYTES, LESS_TO_MOVE, KernelPart, if_busy, of_kernels
from tb_gpudiag.rules.shared.roofline_evidence import stated_peaks
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.quantity import number

CODE = fix_code(__name__)

# TF32 is a choice, not a mistake: a hint needs matmuls whose half is a tenth of the step.
LEAST_SHARE = levels.LARGE

# 16-bit formats have twice the rate of TF32 on every GPU that has both.
HALF_THE_TIME = levels.HALF


def _finding(part: KernelPart) -> RuleAnswer:
    time, tf32 = part.time, part.chosen
    others = time.with_32_bits & ~tf32
    compare, code = "Compare the loss.", "bf16"
    if time.facts.job.training is False:
        compare, code = "Compare the results.", "inference"
    return Finding(
        title=f"TF32 matmuls take {part.of_window} of the time; bf16 has twice the rate",
        summary="FP32 matmuls run on tensor cores as TF32 already. 16-bit formats have twice TF32's rate, "
        "and also halve the bytes that other kernels move. Only a comparison shows "
        "whether their precision is enough.",
        fix=Fix(
            f"Try mixed precision. {compare}", CODE[code], "https://docs.pytorch.org/docs/stable/amp.html"
        ),
        removable=Removable(
            time.shorter((tf32, HALF_THE_TIME), (others, HALF_THE_BYTES)), beyond=LESS_TO_MOVE
        ),
        evidence=[
            time.evidence("TF32 on tensor cores", time.total_ns(tf32)),
            Evidence("Kernels", number(int(tf32.sum()))),
            time.evidence("Other kernels with 32-bit numbers", time.total_ns(others)),
            *stated_peaks(time.device.peaks),
        ],
        **part.where,
    )


# Matmul, convolution and attention kernels whose names say TF32.
_CHECK = speaks_from(
    LEAST_SHARE,
    of_kernels(lambda time: time.kernels.tf32),
    lambda part: f"TF32 matmuls take {part.of_window} of the step window",
    if_busy(_finding),
)

RULE = GpuRule("GD513", "tf32_matmul", "TF32 matmuls", _CHECK, severity=Severity.INFO)
