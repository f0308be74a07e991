"""GD510: elementwise kernels, norms and reductions far below the memory bandwidth."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.operator_costs import Kind
from tb_gpudiag.facts.kernels.roofline import OperatorTime
from tb_gpudiag.rules.rule import (
    NO_GPU,
    NOTHING_CLAIMED,
    Answer,
    CannotTell,
    Claimed,
    Clear,
    Finding,
    Fix,
    Rule,
    Saving,
    Severity,
)
from tb_gpudiag.rules.shared.kernel_time import kernel_time
from tb_gpudiag.rules.shared.roofline_evidence import achieved, operator_evidence, peak_evidence
from tb_gpudiag.wording.format import share

# In public traces, elementwise kernels on contiguous tensors reach 70 to 100% of the stated bandwidth on
# V100, A100 and H100, and copies 66% on MI300X. Those that broadcast or reorder dimensions reach 15 to 50%.
FAR_BELOW = 1 / 2
USUAL = 3 / 4

# A kernel that moves 100 MB takes about this long. Shorter ones have not enough data to fill the memory's
# queues, or have it in the cache.
SHORTEST_NS = 50_000

# Below this, another layout is not worth the work.
LEAST_SHARE = 0.05

OPERATORS_SHOWN = 4

_CODE = """# Make the inputs contiguous once, in the same layout: neighboring threads read neighboring numbers
x = x.contiguous()                          # before a loop over x.transpose(0, 1), not inside it
model = model.to(memory_format=torch.channels_last)    # one layout for the whole convolutional net"""

_FUSE = """

# Or fuse the operator with its neighbors, so that its data is not read and written again
f = torch.compile(f)"""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Find memory-bound operators that take at least twice as long as the stated bandwidth allows."""
    time = kernel_time(facts.device, facts.window, facts.host)
    roofline = facts.roofline
    if time is None or roofline is None:
        return NO_GPU
    streamed = roofline.of(Kind.STREAMED)
    if not streamed:
        return CannotTell(
            "the trace does not contain the shapes of elementwise operators, norms or reductions",
            "Record with record_shapes=True.",
        )
    if roofline.peaks is None:
        heaviest = streamed[0]
        return CannotTell(
            f"the stated bandwidth of this GPU is not known; {heaviest.operator} moves {achieved(heaviest)}"
        )
    slow = [found for found in streamed if _far_below(found)]
    chosen = roofline.kernels_of(slow)
    free = time.free(chosen, claimed)
    left = free.total / max(time.total_ns(chosen), 1)  # share not claimed by another finding
    cost_ns = min(free.total, round(left * sum(_beyond_usual_ns(found) for found in slow)))
    if time.share(cost_ns) < LEAST_SHARE:
        total, least = sum(found.time_ns for found in streamed), sum(found.least_ns for found in streamed)
        return Clear(f"memory-bound operators of known shapes reach {share(least, total)} of the bandwidth")
    compiled = time.mostly(chosen, facts.compiled_kernels)
    return Finding(
        title=f"Memory-bound kernels far below the bandwidth waste {time.of_window(cost_ns)} of the time",
        summary="These kernels only stream data, and memory could deliver it at twice the rate. Usually they "
        "read or write it in an order that memory does not like: transposed, broadcast or unaligned.",
        fix=Fix(
            "Give these operators contiguous tensors of one layout"
            + ("." if compiled else ", or fuse them."),
            _CODE if compiled else _CODE + _FUSE,
            "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns, "estimate"),
        evidence=[
            time.evidence("Beyond three quarters of the bandwidth", cost_ns),
            time.evidence("Kernels of these operators", time.total_ns(chosen)),
            *(operator_evidence(found) for found in slow[:OPERATORS_SHOWN]),
            *peak_evidence(roofline.peaks),
        ],
        places=time.places(chosen),
        ranges=time.ranges(chosen),
        claims={time.device.id: free},
    )


def _far_below(found: OperatorTime) -> bool:
    return found.time_ns >= SHORTEST_NS * found.calls and found.reached < FAR_BELOW


def _beyond_usual_ns(found: OperatorTime) -> float:
    return found.time_ns - found.least_ns / USUAL


RULE = Rule("GD510", "low_bandwidth", "Kernels far below the bandwidth", check, severity=Severity.INFO)
