"""GD501: matrix products in FP32 on a GPU whose tensor cores stand idle meanwhile."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.peaks import Peaks, peaks_of
from tb_gpudiag.rules.rule import (
    NO_GPU,
    NOTHING_CLAIMED,
    Answer,
    CannotTell,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Fix,
    Rule,
    Saving,
    Severity,
)
from tb_gpudiag.rules.shared.kernel_time import kernel_time
from tb_gpudiag.trace.vocabulary.kernel_families import Arithmetic
from tb_gpudiag.wording.format import count, share

# Public traces of GPUs with TF32 have at most 0.2 % of such time; those of Volta 37 to 61 %. Below 5 % the
# change would hardly be seen in the step's time, and some FP32 is kept on purpose (a loss, a last layer).
LEAST_SHARE = 0.05

# Tensor cores came with compute capability 7.0, TF32 and bf16 with 8.0.
TENSOR_CORES = (7, 0)
TF32 = (8, 0)

_CODE = """torch.set_float32_matmul_precision("high")   # TF32 for matrix products, one line
torch.backends.cudnn.allow_tf32 = True       # and for convolutions

# More, where bf16 is precise enough (weights stay FP32):
with torch.autocast("cuda", dtype=torch.bfloat16):
    loss = criterion(model(x), y)"""

_CODE_BEFORE_TF32 = """scaler = torch.amp.GradScaler("cuda")
with torch.autocast("cuda", dtype=torch.float16):
    loss = criterion(model(x), y)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()"""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Kernels of matrix products, convolutions and attention whose names say FP32 without tensor cores."""
    time = kernel_time(facts.device, facts.window, facts.work, facts.host)
    if time is None:
        return NO_GPU
    kernels = time.kernels
    fp32 = kernels.matrix & (kernels.arithmetic == Arithmetic.FP32_CORES)
    free = time.free(fp32, claimed)
    cost_ns = free.total
    if time.share(cost_ns) < LEAST_SHARE:
        return Clear(
            f"FP32 matrix products off the tensor cores take {time.of_window(cost_ns)} of the step window"
        )
    capability = facts.compute_capability(time.device.id)
    if capability is None:
        return CannotTell("the trace does not say whether this GPU has tensor cores")
    if capability < TENSOR_CORES:
        return Clear(f"this GPU (compute capability {capability[0]}.{capability[1]}) has no tensor cores")
    with_tf32 = capability >= TF32
    peaks = peaks_of(time.device.name)
    saving_ns = cost_ns if peaks is None else round(cost_ns * (1 - peaks.fp32 / peaks.half))
    tensor = kernels.arithmetic == Arithmetic.TENSOR_CORES
    return Finding(
        title=f"FP32 matrix products off the tensor cores take {time.of_window(cost_ns)} of the time",
        summary="Matrix products and convolutions run in full FP32 on the ordinary cores, while this GPU's "
        "tensor cores, several times as fast, have nothing to do. "
        + (
            "TF32 keeps FP32's range and rounds the inputs to 10 bits; bf16 also halves the memory traffic."
            if with_tf32
            else "This generation's take FP16, so mixed precision is what brings them in."
        ),
        fix=Fix(
            "Allow TF32, or train in mixed precision; compare the loss with the run before."
            if with_tf32
            else "Train in mixed precision with loss scaling; compare the loss with the run before.",
            _CODE if with_tf32 else _CODE_BEFORE_TF32,
            "https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html"
            if with_tf32
            else "https://docs.pytorch.org/docs/stable/amp.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, saving_ns),
        evidence=[
            Evidence("in FP32 on ordinary cores", f"{time.figure(fp32)}, {count(int(fp32.sum()), 'kernel')}"),
            Evidence("on tensor cores", time.figure(tensor)),
            Evidence("share of the GPU's matrix work", share(cost_ns, time.total_ns(kernels.matrix))),
            *_peak_evidence(peaks),
        ],
        places=time.places(fp32),
        ranges=time.ranges(fp32),
        claims={time.device.id: free},
        # Older GPUs need another precision, with its own risks: a hint, not a warning.
        severity=None if with_tf32 else Severity.INFO,
    )


def _peak_evidence(peaks: Peaks | None) -> list[Evidence]:
    if peaks is None:
        return []
    tf32 = f", TF32 {peaks.tf32:g}" if peaks.tf32 else ""
    return [Evidence("this GPU's stated peak", f"FP32 {peaks.fp32:g}{tf32}, half {peaks.half:g} TFLOP/s")]


RULE = Rule("GD501", "fp32_matmul", "FP32 matrix products off the tensor cores", check)
