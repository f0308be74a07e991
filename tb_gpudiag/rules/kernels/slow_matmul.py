"""GD507: matmuls, convolutions and attention far below the GPU's roofline."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.operator_costs import OperatorKind
from tb_gpudiag.facts.kernels.roofline import OperatorTime
from tb_gpudiag.rules.answer import CannotTell, Clear, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, GpuRule, fix_code
from tb_gpudiag.rules.shared.kernel_time import KernelTime, below_roofline
from tb_gpudiag.rules.shared.roofline_evidence import achieved, why_slow
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.vocabulary.shaped_operators import attention_row
from tb_gpudiag.wording.format import around, in_quotes

CODE = fix_code(__name__)

# In public traces large matmuls reach 50 to 75% of the roofline on H100, 40 to 50% on MI300X and 70 to 97%
# on an RTX 5080, and skinny ones on A100 30 to 45%. Fused attention that is known to be slow (Triton's on
# MI300X) reaches 20%.
FAR_BELOW = 1 / 4
USUAL = 1 / 2

# Smaller savings are not worth another layout or padding.
LEAST_SHARE = levels.NOTICEABLE

_SIXTEEN_BITS = frozenset({"half", "bfloat16"})

COMPUTING = (OperatorKind.MATMUL, OperatorKind.CONVOLUTION, OperatorKind.ATTENTION, OperatorKind.EXPERTS)

_SUBJECTS = {
    OperatorKind.MATMUL: "Matmuls far below the GPU's peaks waste",
    OperatorKind.CONVOLUTION: "Convolutions far below the GPU's peaks waste",
    OperatorKind.ATTENTION: "Attention far below the GPU's peaks wastes",
    OperatorKind.EXPERTS: "Experts far below the GPU's peaks waste",
}

_ADVICE = {
    OperatorKind.MATMUL: (
        "Use larger matmuls with rounder sizes, or let the compiler choose the kernel.",
        CODE["matmul"],
    ),
    OperatorKind.CONVOLUTION: ("Use a larger batch, channels last, and a 16-bit dtype.", CODE["convolution"]),
    OperatorKind.ATTENTION: ("Use another implementation of fused attention.", CODE["attention"]),
    OperatorKind.EXPERTS: ("Give each expert more tokens at a time.", CODE["experts"]),
}


def _is_backward_attention(found: OperatorTime) -> bool:
    """cuDNN's reaches 21 to 25% of the peak in healthy jobs on an H200, and no other implementation is known
    to do better there."""
    row = attention_row(found.operator)
    return row is not None and row.backward


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find operators whose kernels take several times as long as the stated peaks allow."""
    time = KernelTime(facts)
    computing = time.device.roofline.of(*COMPUTING)
    if not time.kernels.matrix.any() and not computing:
        return Clear("no matmul, convolution or attention ran in the step window")
    if time.device.peaks is None:
        return CannotTell("the stated peaks of this GPU are not known" + _best_known(computing))
    if not computing:
        return CannotTell(
            "the trace does not contain the shapes or dtypes of its matmuls",
            "Record with record_shapes=True.",
        )
    # Changes of layout that a library adds around its convolutions are left to GD506.
    without = time.kernels.family == Family.COPY
    judged = [found for found in computing if not _is_backward_attention(found)]
    slow = below_roofline(time, judged, claimed, far_below=FAR_BELOW, usual=USUAL, without=without)
    if time.share(slow.cost_ns) < LEAST_SHARE:
        return Clear(slow.not_found("operators", computing, "the roofline") + _shape(computing, time))
    kind = max(
        COMPUTING, key=lambda kind: slow.beyond_usual_ns([f for f in slow.operators if f.kind is kind])
    )
    advice, code = _ADVICE[kind]
    if all(found.number in _SIXTEEN_BITS for found in slow.operators if found.kind is kind):
        advice = advice.replace(", channels last, and a 16-bit dtype", " and channels last")
    return slow.finding(
        _SUBJECTS[kind],
        "For these shapes the GPU's compute and memory allow several times this rate. The shapes are "
        "thin, odd or small, or the library has no good kernel for them.",
        Fix(
            advice,
            code,
            "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html",
        ),
        "Beyond half the roofline's rate",
    )


def _shape(computing: list[OperatorTime], time: KernelTime) -> str:
    """Say why the heaviest operator does not reach more of the roofline."""
    heaviest = computing[0]
    reason = why_slow(heaviest) if time.share(heaviest.time_ns) >= LEAST_SHARE else ""
    return around(f"; {in_quotes(heaviest.operator)} is limited by its shape: ", reason)


def _best_known(computing: list[OperatorTime]) -> str:
    """What can be said without peaks: the rate of the heaviest operator, and what is odd about its shape."""
    if not computing:
        return ""
    because = around(", limited by its shape: ", why_slow(computing[0]))
    return f"; {in_quotes(computing[0].operator)} runs at {achieved(computing[0])}{because}"


RULE = GpuRule("GD507", "slow_matmul", "Matmuls far below the GPU's peaks", check, severity=Severity.INFO)
