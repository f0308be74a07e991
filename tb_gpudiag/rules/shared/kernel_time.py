"""Kernels as time in the step window and as places in the user's code, for the rules about kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import Bool, Float64, Int64
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, subtract
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.facts.kernels.multiprocessors import exposed
from tb_gpudiag.facts.kernels.roofline import OperatorTime
from tb_gpudiag.facts.replay.replay import Removal, Shorter
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Fix, Place, Range, Removable, RuleAnswer
from tb_gpudiag.rules.rule import Claimed
from tb_gpudiag.rules.shared.lost_time import Where, longest, places
from tb_gpudiag.rules.shared.roofline_evidence import operator_evidence, stated_peaks
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.wording.format import share, time_ns
from tb_gpudiag.wording.quantity import duration

LESS_TO_MOVE = "16-bit formats also halve the bytes that other kernels move"

OTHER_FINDINGS = "the fix also shortens time that other findings count"


_SMALL_MODEL = (
    "The model is too small for this GPU: its kernels take {} on average, and have blocks for {} of the "
    "multiprocessors. A larger batch, or several such jobs on one GPU, would use more of it."
)

# An empty kernel takes 2 to 3 µs. Kernels shorter than this are limited by launching (GD201).
NEARLY_EMPTY_NS = 5_000

# A kernel that waits for memory takes half as long with numbers of half the size.
HALF_THE_BYTES = levels.HALF


@dataclass(frozen=True)
class KernelTime:
    """The busiest GPU's work in the step window."""

    facts: Facts

    @property
    def device(self) -> DeviceFacts:
        return self.facts.gpu

    @property
    def kernels(self) -> Kernels:
        return self.facts.gpu.kernels

    @property
    def window_ns(self) -> int:
        return self.facts.window.duration_ns

    @property
    def busy_ns(self) -> int:
        """Time in which anything ran."""
        return self.total_ns(np.ones(len(self.kernels.event), np.bool_))

    @property
    def with_32_bits(self) -> Bool:
        """Mask of kernels with 32-bit numbers, except those that update weights: these stay in FP32."""
        return self.kernels.shortens & self.kernels.is_kernel

    def total_ns(self, chosen: Bool) -> int:
        """Time in which at least one of the chosen kernels ran."""
        return self.kernels.union(chosen).total

    def free(self, chosen: Bool, claimed: Claimed) -> Intervals:
        """Time in which at least one of the chosen kernels ran and another stream's kernels did not hide it,
        minus what earlier findings claimed."""
        return subtract(exposed(self.kernels, chosen), claimed.get(self.device.id, EMPTY))

    def mostly(self, chosen: Bool, kind: Bool) -> bool:
        """Whether at least half of the chosen kernels' time is of this kind."""
        time_ns = self.kernels.duration_ns
        own_ns = int(time_ns[chosen & kind].sum())
        return own_ns > 0 and 2 * own_ns >= int(time_ns[chosen].sum())

    def share(self, nanoseconds: float) -> float:
        """Share of the step window, 0 to 1; 0 if the window is empty, in which nothing takes time."""
        return nanoseconds / max(1, self.window_ns)

    def of_window(self, nanoseconds: float) -> str:
        """Share of the step window as text, such as `4.5%`."""
        return share(nanoseconds, self.window_ns)

    def evidence(self, label: str, nanoseconds: int) -> Evidence:
        """A duration with its share of the step window."""
        return Evidence.of_window(label, nanoseconds, self.window_ns)

    def shorter(self, *parts: tuple[Bool, float | Float64]) -> Removal:
        """Chosen kernels without these shares of their time: one for all, or one for each."""
        event = [self.kernels.event[chosen] for chosen, _ in parts]
        share = [np.broadcast_to(gone, len(some)) for some, (_, gone) in zip(event, parts, strict=True)]
        return Removal(shorter=Shorter(np.concatenate(event), np.concatenate(share)))

    def saving(self, chosen: Bool, saved_ns: float) -> Removable:
        """A fix that saves at most so much of the time in which one of the chosen kernels ran."""
        gone = min(1.0, saved_ns / max(1, self.total_ns(chosen)))
        return Removable(self.shorter((chosen, gone)), beyond=OTHER_FINDINGS)

    def saving_above_peaks(self, chosen: Bool, saved_ns: float) -> Removable:
        """The same for a fix after which the kernels still do the same work."""
        gone = min(1.0, saved_ns / max(1, self.total_ns(chosen)))
        shares = np.minimum(gone, self.above_peaks[chosen])
        return Removable(self.shorter((chosen, shares)), beyond=OTHER_FINDINGS)

    @property
    def small_model_sentence(self) -> str:
        """Say that the model is too small for the GPU: its kernels take hardly longer than empty ones, and
        have no block for most multiprocessors. "" where they have, or where the trace does not say."""
        kernels = self.kernels
        own = kernels.is_kernel & (kernels.family != Family.COLLECTIVE) & ~np.isnan(kernels.blocks_per_sm)
        took_ns = kernels.duration_ns[own]
        if not 0 < took_ns.sum() < NEARLY_EMPTY_NS * len(took_ns):
            return ""
        used = float(np.average(np.minimum(kernels.blocks_per_sm[own], 1), weights=took_ns))
        return _SMALL_MODEL.format(time_ns(took_ns.mean()), share(used)) if used < levels.HALF else ""

    @cached_property
    def above_peaks(self) -> Float64:
        """The share of each kernel's time that its work does not need at the stated peaks, shape (k,): no fix
        saves more while the work stays. 1 where the peaks or the operator's sizes are not known."""
        roofline = self.device.roofline
        reached = np.array([*(min(1.0, found.reached) for found in roofline.operators), 0.0])
        return 1 - reached[roofline.operator]  # NONE is the last one

    def places(self, chosen: Bool, weight_ns: Int64 | None = None) -> list[Place]:
        """Where the chosen kernels were launched, heaviest place first.

        weight_ns: what counts for each of all kernels; their durations by default.
        """
        weight = self.kernels.duration_ns if weight_ns is None else weight_ns
        return places(self.facts.host, self.kernels.origin[chosen], weight[chosen], by_operator=True)

    def where(self, chosen: Bool, free: Intervals) -> Where:
        """Say where the chosen kernels are. free: their time that the finding costs and claims."""
        claims = {self.device.id: free}
        return Where(
            cost_ns=free.total, places=self.places(chosen), ranges=self.ranges(chosen), claims=claims
        )

    def ranges(self, chosen: Bool) -> list[Range]:
        """The longest stretches of the chosen kernels on the timeline."""
        return longest(self.kernels.union(chosen), self.device.id)


@dataclass(frozen=True, eq=False)
class KernelPart:
    """Kernels that a rule is about. chosen: mask of them, shape (k,). free: their time that the finding costs
    and claims."""

    time: KernelTime
    chosen: Bool
    free: Intervals
    claimed: Claimed

    @property
    def share(self) -> float:
        return self.time.share(self.free.total)

    def share_of(self, chosen: Bool) -> float:
        """The same of other kernels."""
        return self.time.share(self.time.free(chosen, self.claimed).total)

    @property
    def of_window(self) -> str:
        return self.time.of_window(self.free.total)

    @property
    def where(self) -> Where:
        return self.time.where(self.chosen, self.free)


def of_kernels(choose: Callable[[KernelTime], Bool]) -> Callable[[Facts, Claimed], KernelPart]:
    """Return the time of the kernels that a rule chooses, for speaks_from."""

    def part(facts: Facts, claimed: Claimed) -> KernelPart:
        time = KernelTime(facts)
        chosen = choose(time)
        return KernelPart(time, chosen, time.free(chosen, claimed), claimed)

    return part


def if_busy(find: Callable[[KernelPart], RuleAnswer]) -> Callable[[KernelPart], RuleAnswer]:
    """Let a rule speak only where the GPU is busy for half of the time: faster kernels shorten no wait."""

    def find_if_busy(part: KernelPart) -> RuleAnswer:
        time = part.time
        if time.share(time.busy_ns) >= levels.HALF:
            return find(part)
        return Clear(f"the GPU is busy {time.of_window(time.busy_ns)} of the step window: it waits, mostly")

    return find_if_busy


# An empty kernel takes 2 to 3 µs, one that fills the GPU needs some more to ramp up and drain, and one that
# moves little has its data in the cache. Below this the size is the problem (GD201, GD504), not the rate. A
# kernel that moves 100 MB takes about this long.
SHORTEST_NS = 50_000

_SHORTEST = str(duration(SHORTEST_NS))

OPERATORS_SHOWN = 4


@dataclass(frozen=True, eq=False)
class BelowRoofline:
    """Operators that take far longer than the stated peaks allow.

    usual: share of the roofline that such operators reach in public traces. chosen: mask of their kernels,
    shape (k,). free: their time that no other finding has claimed.
    """

    time: KernelTime
    operators: list[OperatorTime]
    usual: float
    chosen: Bool
    free: Intervals

    @cached_property
    def cost_ns(self) -> int:
        """The free time beyond the usual rate."""
        left = self.free.total / max(self.time.total_ns(self.chosen), 1)  # neither claimed nor hidden
        return min(self.free.total, round(left * self.beyond_usual_ns(self.operators)))

    def beyond_usual_ns(self, operators: Sequence[OperatorTime]) -> float:
        """Time of these operators beyond the usual rate."""
        return sum(found.time_ns - found.least_ns / self.usual for found in operators)

    def not_found(self, what: str, operators: Sequence[OperatorTime], limit: str) -> str:
        """What to say if the cost is small. operators: all that were looked at. limit: what they would reach.

        Operators far below the limit are not called fine: their time is claimed or hidden.
        """
        judged = [found for found in operators if found.time_ns >= SHORTEST_NS * found.calls]
        if not judged:
            return f"{what} of known shapes are too short to judge: each takes less than {_SHORTEST}"
        total, least = sum(found.time_ns for found in judged), sum(found.least_ns for found in judged)
        counted = 2 * self.free.total < self.time.total_ns(self.chosen)
        beside = "; other findings count the time of those far below it, or it is hidden" if counted else ""
        return f"{what} of known shapes reach {share(least, total)} of {limit}{beside}"

    def finding(self, title: str, summary: str, fix: Fix, cost: str) -> Finding:
        """title: up to the share of the time. cost: what the time beyond the usual rate is called."""
        time, peaks = self.time, self.time.device.peaks
        return Finding(
            title=f"{title} {time.of_window(self.cost_ns)} of the time",
            summary=summary,
            fix=fix,
            cost_ns=self.cost_ns,
            removable=time.saving_above_peaks(self.chosen, self.cost_ns),
            evidence=[
                time.evidence(cost, self.cost_ns),
                time.evidence("Kernels of these operators", time.total_ns(self.chosen)),
                *(operator_evidence(found) for found in self.operators[:OPERATORS_SHOWN]),
                *stated_peaks(peaks, memory=True),
            ],
            places=time.places(self.chosen),
            ranges=time.ranges(self.chosen),
            claims={time.device.id: self.free},
        )


def below_roofline(
    time: KernelTime,
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
    chosen = time.device.roofline.kernels_of(slow)
    if without is not None:
        chosen &= ~without
    return BelowRoofline(time, slow, usual, chosen, time.free(chosen, claimed))
