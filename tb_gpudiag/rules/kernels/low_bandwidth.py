"""GD510: elementwise kernels, norms and reductions far below the memory bandwidth."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.operator_costs import OperatorKind
from tb_gpudiag.rules.fix_code import fix_code
from tb_gpudiag.rules.rule import CannotTell, Claimed, Clear, Fix, Rule, RuleAnswer, Severity
from tb_gpudiag.rules.shared.kernel_time import KernelTime, below_roofline
from tb_gpudiag.rules.shared.roofline_evidence import achieved
from tb_gpudiag.wording.format import share

CODE = fix_code(__name__)

# In public traces, elementwise kernels on contiguous tensors reach 70 to 100% of the stated bandwidth on
# V100, A100 and H100, and copies 66% on MI300X. Those that broadcast or reorder dimensions reach 15 to 50%.
FAR_BELOW = 1 / 2
USUAL = 3 / 4

# Below this, another layout is not worth the work.
LEAST_SHARE = 0.05


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find memory-bound operators that take at least twice as long as the stated bandwidth allows."""
    time = KernelTime(facts)
    streamed = facts.roofline.of(OperatorKind.STREAMED)
    if not streamed:
        return CannotTell(
            "the trace does not contain the shapes of elementwise operators, norms or reductions",
            "Record with record_shapes=True.",
        )
    if facts.peaks is None:
        heaviest = streamed[0]
        return CannotTell(
            f"the stated bandwidth of this GPU is not known; {heaviest.operator} moves {achieved(heaviest)}"
        )
    slow = below_roofline(time, streamed, claimed, far_below=FAR_BELOW, usual=USUAL)
    if time.share(slow.cost_ns) < LEAST_SHARE:
        total, least = sum(found.time_ns for found in streamed), sum(found.least_ns for found in streamed)
        return Clear(f"memory-bound operators of known shapes reach {share(least, total)} of the bandwidth")
    compiled = time.mostly(slow.chosen, facts.compiled_kernels)
    return slow.finding(
        "Memory-bound kernels far below the bandwidth waste",
        "These kernels only stream data, and memory could deliver it at twice the rate. Usually they "
        "read or write it in an order that memory does not like: transposed, broadcast or unaligned.",
        Fix(
            "Give these operators contiguous tensors of one layout"
            + ("." if compiled else ", or fuse them."),
            CODE["contiguous"] + ("" if compiled else f"\n\n{CODE['fuse']}"),
            "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        ),
        "Beyond three quarters of the bandwidth",
    )


RULE = Rule(
    "GD510", "low_bandwidth", "Kernels far below the bandwidth", check, needs_gpu=True, severity=Severity.INFO
)
