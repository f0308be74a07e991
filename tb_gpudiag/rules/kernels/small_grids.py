"""GD504: kernels with fewer blocks than the GPU has multiprocessors."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.intervals import EMPTY, coverage
from tb_gpudiag.facts.facts import Facts
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
from tb_gpudiag.trace.vocabulary.kernel_families import Family
from tb_gpudiag.wording.format import count, time_ns

# Public traces of training lose 1 to 1.5 % of the window so, one of a small model in a CUDA graph 8 %.
LEAST_SHARE = 0.05

# A kernel that does nothing takes 2 to 3 µs. Shorter ones than this are about launching (GD201), not about
# size.
SHORTEST_NS = 5_000

_CODE = """# More work in each kernel: a larger batch, or what a loop does one by one at once
y = torch.bmm(x, weights)              # in place of [xi @ wi for xi, wi in zip(x, weights)]
total = values.sum(dim=-1)             # one reduction over all rows, not one for each

# Or side by side, where pieces do not depend on each other:
with torch.cuda.stream(other):
    b = branch_b(x)"""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """A kernel of half as many blocks as there are multiprocessors leaves half the GPU idle while it runs."""
    time = kernel_time(facts.device, facts.window, facts.work, facts.host)
    if time is None:
        return NO_GPU
    kernels = time.kernels
    blocks = kernels.blocks_per_sm
    if np.isnan(blocks).all():
        return CannotTell("the trace does not say how many blocks its kernels had (ROCm's recorder does not)")
    chosen = (blocks < 1) & (kernels.family != Family.COLLECTIVE) & (kernels.duration_ns >= SHORTEST_NS)
    # What another finding speaks of is not counted here.
    already = claimed.get(time.device.id, EMPTY)
    chosen[chosen] = coverage(already, kernels.start_ns[chosen], kernels.end_ns[chosen]) == 0
    unused_ns = np.where(chosen, kernels.duration_ns * (1 - np.nan_to_num(blocks)), 0).astype(np.int64)
    cost_ns = min(int(unused_ns.sum()), time.total_ns(chosen))  # side by side they waste it once
    if time.share(cost_ns) < LEAST_SHARE:
        return Clear(
            f"kernels with fewer blocks than multiprocessors waste {time.of_window(cost_ns)} of the step "
            "window"
        )
    weight = kernels.duration_ns[chosen]
    evidence = [
        Evidence("such kernels", f"{time.figure(chosen)}, {count(int(chosen.sum()))}"),
        Evidence("multiprocessors without a block, as time of the whole GPU", time_ns(cost_ns)),
        Evidence(
            "blocks for each multiprocessor", f"{np.average(blocks[chosen], weights=weight):.2f} on average"
        ),
    ]
    return Finding(
        title=f"Kernels too small for this GPU waste {time.of_window(cost_ns)} of the time",
        summary="These kernels have fewer blocks than the GPU has multiprocessors, so part of the GPU has "
        "nothing to do while they run, however long they take. More work at once would run in "
        "nearly the same time.",
        fix=Fix("Give each kernel more to do at once, or run independent ones side by side.", _CODE),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns, "estimate"),
        evidence=evidence,
        places=time.places(chosen, unused_ns),
        ranges=time.ranges(chosen),
        claims={time.device.id: kernels.union(chosen)},
    )


RULE = Rule("GD504", "small_grids", "Kernels too small for the GPU", check, severity=Severity.INFO)
