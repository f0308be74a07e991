"""Operators far below the GPU's roofline, for the rules about matmuls and about memory-bound kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tb_gpudiag.arrays import Bool
from tb_gpudiag.facts.core.intervals import Intervals
from tb_gpudiag.facts.kernels.roofline import OperatorTime, Roofline
from tb_gpudiag.rules.rule import Claimed, Evidence, Finding, Fix, Saving
from tb_gpudiag.rules.shared.kernel_time import KernelTime
from tb_gpudiag.rules.shared.roofline_evidence import operator_evidence, peak_evidence
from tb_gpudiag.rules.shared.slow_shapes import why_slow

# An empty kernel takes 2 to 3 µs, one that fills the GPU needs some more to ramp up and drain, and one that
# moves little has its data in the cache. Below this the size is the problem (GD201, GD504), not the rate. A
# kernel that moves 100 MB takes about this long.
SHORTEST_NS = 50_000

OPERATORS_SHOWN = 4


@dataclass(frozen=True)
class BelowRoofline:
    """Operators that take far longer than the stated peaks allow.

    usual: share of the roofline that such operators reach in public traces. chosen: mask of their kernels,
    shape (k,). free: their time that no other finding has claimed. cost_ns: of it, the time beyond the usual
    rate.
    """

    operators: list[OperatorTime]
    usual: float
    chosen: Bool
    free: Intervals
    cost_ns: int

    def beyond_usual_ns(self, operators: Sequence[OperatorTime]) -> float:
        """Time of these operators beyond the usual rate."""
        return sum(found.time_ns - found.least_ns / self.usual for found in operators)

    def finding(
        self, time: KernelTime, roofline: Roofline, title: str, summary: str, fix: Fix, cost: str
    ) -> Finding:
        """title: up to the share of the time. cost: what the time beyond the usual rate is called."""
        return Finding(
            title=f"{title} {time.of_window(self.cost_ns)} of the time",
            summary=summary,
            fix=fix,
            cost_ns=self.cost_ns,
            saving=Saving(0, self.cost_ns, "estimate"),
            evidence=[
                time.evidence(cost, self.cost_ns),
                time.evidence("Kernels of these operators", time.total_ns(self.chosen)),
                *self._operator_evidence(),
                *(peak_evidence(roofline.peaks) if roofline.peaks is not None else []),
            ],
            places=time.places(self.chosen),
            ranges=time.ranges(self.chosen),
            claims={time.device.id: self.free},
        )

    def _operator_evidence(self) -> list[Evidence]:
        return [operator_evidence(found, why_slow(found)) for found in self.operators[:OPERATORS_SHOWN]]


def below_roofline(
    time: KernelTime,
    roofline: Roofline,
    operators: Sequence[OperatorTime],
    claimed: Claimed,
    *,
    far_below: float,
    usual: float,
    without: Bool | None = None,
) -> BelowRoofline:
    """Find operators that reach less than `far_below` of the roofline.

    without: mask of kernels to leave out, shape (k,).
    """
    slow = [o for o in operators if o.time_ns >= SHORTEST_NS * o.calls and o.reached < far_below]
    chosen = roofline.kernels_of(slow)
    if without is not None:
        chosen &= ~without
    free = time.free(chosen, claimed)
    left = free.total / max(time.total_ns(chosen), 1)  # share that is neither claimed nor hidden
    found = BelowRoofline(slow, usual, chosen, free, 0)
    cost_ns = min(free.total, round(left * found.beyond_usual_ns(slow)))
    return BelowRoofline(slow, usual, chosen, free, cost_ns)
