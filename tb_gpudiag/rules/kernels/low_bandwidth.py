"""GD510: elementwise kernels, norms and reductions far below the memory bandwidth."""

from __future__ import annotations

from collections.abc import Sequence

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.operator_costs import OperatorKind
from tb_gpudiag.facts.kernels.roofline import OperatorTime
from tb_gpudiag.rules.answer import CannotTell, Clear, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, GpuRule, fix_code
from tb_gpudiag.rules.shared.kernel_time import KernelTime, below_roofline
from tb_gpudiag.rules.shared.roofline_evidence import achieved
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import in_quotes

CODE = fix_code(__name__)

# In public traces, elementwise kernels on contiguous tensors reach 70 to 100% of the stated bandwidth on
# V100, A100 and H100, and copies 66% on MI300X. Those that broadcast or reorder dimensions reach 15 to 50%.
FAR_BELOW = 1 / 2
USUAL = 3 / 4

# What the strides of the inputs say, where they were recorded.
_WHY = {
    None: "Usually they read or write it in an order that wastes bandwidth: transposed, broadcast or "
    "unaligned.",
    False: "They read or write it in an order that wastes bandwidth: their inputs are transposed, "
    "broadcast or strided.",
    True: "Their inputs are contiguous, so it is not the layout: the kernels are poor for these shapes, or "
    "the GPU ran slowly.",
}

# Below this, another layout is not worth the work.
LEAST_SHARE = levels.NOTICEABLE


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find memory-bound operators that take at least twice as long as the stated bandwidth allows."""
    time = KernelTime(facts)
    streamed = time.device.roofline.of(OperatorKind.STREAMED)
    if not streamed:
        return CannotTell(
            "the trace does not contain the shapes of elementwise operators, norms or reductions",
            "Record with record_shapes=True.",
        )
    if time.device.peaks is None:
        heaviest = streamed[0]
        return CannotTell(
            "the stated bandwidth of this GPU is not known; "
            f"{in_quotes(heaviest.operator)} moves {achieved(heaviest)}"
        )
    slow = below_roofline(time, streamed, claimed, far_below=FAR_BELOW, usual=USUAL)
    if time.share(slow.cost_ns) < LEAST_SHARE:
        return Clear(slow.not_found("memory-bound operators", streamed, "the bandwidth"))
    in_order = _mostly_in_order(slow.operators)
    return slow.finding(
        "Memory-bound kernels far below the bandwidth waste",
        "These kernels only stream data, and memory could deliver it at twice the rate. " + _WHY[in_order],
        _fix(in_order, time.mostly(slow.chosen, facts.launches.compiled(time.kernels))),
        "Beyond three quarters of the bandwidth",
    )


def _mostly_in_order(operators: Sequence[OperatorTime]) -> bool | None:
    """Whether the operators with most of the time read contiguous inputs; None if that is not known."""
    time_ns = {known: sum(o.time_ns for o in operators if o.in_order is known) for known in _WHY}
    return max(time_ns, key=lambda known: time_ns[known])


def _fix(in_order: bool | None, compiled: bool) -> Fix:
    """Another layout, unless the inputs are contiguous already; fusing, unless a compiler has done that."""
    parts = [
        *([] if in_order else [("Give these operators contiguous tensors of one layout", "contiguous")]),
        *([] if compiled else [("fuse them with their neighbors", "fuse")]),
        *([("look for a faster kernel for these shapes", "shapes")] if in_order and compiled else []),
    ]
    text = ", or ".join(text for text, _ in parts)
    return Fix(
        f"{text[0].upper()}{text[1:]}.",
        "\n\n".join(CODE[block] for _, block in parts),
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    )


RULE = GpuRule("GD510", "low_bandwidth", "Kernels far below the bandwidth", check, severity=Severity.INFO)
