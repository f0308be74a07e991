"""GD503: unfused attention, which writes the whole score matrix to memory."""

from __future__ import annotations

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.kernels.kernels import UnfusedAttention
from tb_gpudiag.rules.answer import Evidence, Finding, Removable
from tb_gpudiag.rules.rule import GpuRule, page_fixes, speaks_from
from tb_gpudiag.rules.shared.kernel_time import KernelPart, KernelTime, of_kernels
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.quantity import duration, number

FIXES = page_fixes(__name__)

# Public traces with unfused attention spend 22% of the window between the two matmuls, or less than 1%. No
# trace is in between. Below 5% a fix hardly changes the step time.
LEAST_SHARE = levels.NOTICEABLE


def _too_little(part: KernelPart) -> str:
    if len(part.time.device.unfused_attention.softmax):
        return f"unfused attention spends {part.of_window} of the step window between its matmuls"
    return "no softmax ran between two batched matmuls"


def _finding(part: KernelPart) -> Finding:
    time, found, cost_ns = part.time, part.time.device.unfused_attention, part.free.total
    kernels = time.kernels
    matmuls_ns = _saved_in_matmuls_ns(time, found)
    beyond = (duration(matmuls_ns, "beyond their arithmetic"),) if matmuls_ns else ()
    return Finding(
        title=f"Unfused attention spends {part.of_window} of the time between its two matmuls",
        summary="Separate kernels write the attention scores to memory, scale, mask and normalize them, and "
        "read them back. Fused attention keeps the scores on chip and needs none of these kernels. Its "
        "memory grows linearly with the sequence length, not quadratically.",
        fix=FIXES["fused"],
        removable=Removable(
            time.shorter(
                (found.between, cost_ns / time.total_ns(found.between)),
                (found.matmuls, min(1.0, matmuls_ns / max(1, time.total_ns(found.matmuls)))),
            ),
            beyond="fused attention also spares its matmuls the scores in memory",
        ),
        evidence=[
            time.evidence("Between the matmuls", cost_ns),
            Evidence("Kernels between the matmuls", number(int(found.between.sum()))),
            Evidence("Softmax kernels", duration(time.total_ns(found.between & kernels.softmax))),
            Evidence("Unfused attention", number(len(found.softmax), "time")),
            Evidence("The matmuls", duration(time.total_ns(found.matmuls)), beyond),
        ],
        **part.where,
    )


def _saved_in_matmuls_ns(time: KernelTime, found: UnfusedAttention) -> int:
    """Time of the matmuls beyond their arithmetic at the stated peak: fused, they do not write the scores to
    memory. 0 where shapes or peaks are not known."""
    roofline = time.device.roofline
    if roofline.peaks is None:
        return 0
    saved = 0.0
    for place in {int(i) for i in roofline.operator[found.matmuls] if i != NONE}:
        operator = roofline.operators[place]
        own = int(time.kernels.duration_ns[found.matmuls & (roofline.operator == place)].sum())
        saved += max(0.0, own - operator.arithmetic_ns * own / operator.time_ns)
    return round(saved)


# What runs between the two batched matmuls of attention: softmax, scale, mask, dropout, casts.
_BETWEEN = of_kernels(lambda time: time.device.unfused_attention.between)
_CHECK = speaks_from(LEAST_SHARE, _BETWEEN, _too_little, _finding)

RULE = GpuRule("GD503", "unfused_attention", "Unfused attention", _CHECK)
