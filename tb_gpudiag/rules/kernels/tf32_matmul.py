"""GD513: matmuls that run as TF32, where 16-bit formats have twice the rate."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Fix, Removable, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, Rule, fix_code
from tb_gpudiag.rules.shared.kernel_time import HALF_THE_BYTES, LESS_TO_MOVE, KernelTime
from tb_gpudiag.rules.shared.roofline_evidence import stated_peaks
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.quantity import number

CODE = fix_code(__name__)

# TF32 is a choice, not a mistake: a hint needs matmuls whose half is a tenth of the step.
LEAST_SHARE = levels.LARGE


# 16-bit formats have twice the rate of TF32 on every GPU that has both.
HALF_THE_TIME = levels.HALF


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find matmul, convolution and attention kernels whose names say TF32."""
    time = KernelTime(facts)
    tf32 = time.kernels.tf32
    free = time.free(tf32, claimed)
    if time.share(free.total) < LEAST_SHARE:
        return Clear(f"TF32 matmuls take {time.of_window(free.total)} of the step window")
    if time.share(time.busy_ns) < levels.HALF:
        return Clear(f"the GPU is busy {time.of_window(time.busy_ns)} of the step window: it waits, mostly")
    others = time.with_32_bits & ~tf32
    compare, code = "Compare the loss.", "bf16"
    if facts.job.training is False:
        compare, code = "Compare the results.", "inference"
    return Finding(
        title=f"TF32 matmuls take {time.of_window(free.total)} of the time; bf16 has twice the rate",
        summary="FP32 matmuls run on tensor cores as TF32 already. 16-bit formats have twice TF32's rate, "
        "and also halve the bytes that other kernels move. Only a comparison shows "
        "whether their precision is enough.",
        fix=Fix(
            f"Try mixed precision. {compare}",
            CODE[code],
            "https://docs.pytorch.org/docs/stable/amp.html",
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
        **time.where(tf32, free),
    )


RULE = Rule("GD513", "tf32_matmul", "TF32 matmuls", check, needs_gpu=True, severity=Severity.INFO)
