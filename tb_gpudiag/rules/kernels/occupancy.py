"""GD508: last waves that fill only part of the GPU, and kernels with low occupancy."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Bool
from tb_gpudiag.facts.core.intervals import EMPTY, coverage, intersect
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.multiprocessors import Occupancy, alone, occupancy
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, GpuRule, page_fixes
from tb_gpudiag.rules.shared.kernel_time import KernelTime
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.wording.quantity import mean, number, share_of

FIXES = page_fixes(__name__)

# Public traces of healthy convolutional training lose 4 to 6% to last waves, and spend less than 1% in
# kernels with low occupancy.
LEAST_SHARE = levels.SIZEABLE

# A half-empty wave out of four costs an eighth. With more waves, blocks no longer run in lockstep anyway.
MOST_WAVES = 4

# Below half of its warps a multiprocessor may have too little other work while it waits for memory.
LOW = levels.HALF

# A grid that fills the GPU exactly once is a persistent kernel's: its blocks loop over the work, mostly on
# tensor cores, and low occupancy is its design. One of a user's ran at 508 TFLOP/s on an H100.
PERSISTENT = 1

# Shorter kernels are limited by launching.
SHORTEST_NS = 20_000

# These wait for memory, and need many warps to hide its latency. Tensor core kernels run well with few.
MEMORY_FAMILIES = (
    Family.ELEMENTWISE,
    Family.REDUCTION,
    Family.NORMALIZATION,
    Family.SOFTMAX,
    Family.COPY,
    Family.OTHER,
)


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find matmul kernels whose last wave fills only part of the GPU, and memory-bound kernels with too few
    warps because of their registers or shared memory."""
    time = KernelTime(facts)
    multiprocessor = time.device.multiprocessor
    if multiprocessor is None:
        return CannotTell("the trace does not say what resources this GPU's multiprocessors have")
    resident = occupancy(time.kernels, multiprocessor)
    if not resident.blocks.any():
        return CannotTell("the trace does not say what resources its kernels need")
    kernels = time.kernels
    long = kernels.duration_ns >= SHORTEST_NS
    already = claimed.get(time.device.id, EMPTY)
    long[long] = coverage(already, kernels.start_ns[long], kernels.end_ns[long]) == 0
    tail = long & kernels.matrix & ~kernels.vector & (resident.waves > 1) & (resident.waves <= MOST_WAVES)
    tail &= facts.job.server is None  # its engine chooses sizes, by the requests that are there
    low = long & np.isin(kernels.family, np.array(MEMORY_FAMILIES, np.uint8))
    low &= resident.limit & (resident.share < LOW) & (resident.waves > PERSISTENT)
    found = [_last_waves(time, resident, tail), _low_occupancy(time, resident, low)]
    return list(filter(None, found)) or Clear(
        f"partly empty last waves waste {time.of_window(_empty_ns(time, resident, tail))} of the step "
        f"window, and kernels with low occupancy take {time.of_window(_alone_ns(time, low))}"
    )


def _empty_ns(time: KernelTime, resident: Occupancy, tail: Bool) -> int:
    """The empty part of the last waves, as time of the whole GPU."""
    kernels, waves = time.kernels, resident.waves[tail]
    # Other kernels that run meanwhile fill the multiprocessors that are free.
    unshared = coverage(alone(kernels), kernels.start_ns[tail], kernels.end_ns[tail])
    empty_ns = unshared * (np.ceil(waves) - waves) / np.ceil(waves)
    return int(np.minimum(empty_ns, kernels.duration_ns[tail] * time.above_peaks[tail]).sum())


def _alone_ns(time: KernelTime, chosen: Bool) -> int:
    """Time in which one of the chosen kernels runs and no other kernel computes."""
    return intersect(time.kernels.union(chosen), alone(time.kernels)).total


def _last_waves(time: KernelTime, resident: Occupancy, tail: Bool) -> Finding | None:
    cost_ns = _empty_ns(time, resident, tail)
    if time.share(cost_ns) < LEAST_SHARE:
        return None
    weight = time.kernels.duration_ns[tail]
    return Finding(
        title=f"Partly empty last waves waste {time.of_window(cost_ns)} of the time",
        summary="These kernels have a few more blocks than the GPU runs at once. The remaining blocks take "
        "as long as a full wave, and most multiprocessors are idle meanwhile.",
        fix=FIXES["sizes"],
        cost_ns=cost_ns,
        removable=time.saving_above_peaks(tail, cost_ns),
        evidence=[
            time.evidence("Whole-GPU time wasted", cost_ns),
            time.evidence("Kernels with a partial last wave", time.total_ns(tail)),
            Evidence("Kernels", number(int(tail.sum()))),
            Evidence("Waves per kernel", mean(np.average(resident.waves[tail], weights=weight))),
        ],
        places=time.places(tail),
        ranges=time.ranges(tail),
        claims={time.device.id: time.kernels.union(tail)},
    )


def _low_occupancy(time: KernelTime, resident: Occupancy, low: Bool) -> Finding | None:
    total_ns = _alone_ns(time, low)
    if time.share(total_ns) < LEAST_SHARE:
        return None
    weight = time.kernels.duration_ns[low]
    fit = float(np.average(resident.share[low], weights=weight))
    registers = float(np.average(time.kernels.registers[low], weights=weight))
    return Finding(
        title=f"Kernels with low occupancy take {time.of_window(total_ns)} of the time",
        summary="Their blocks need so many registers or so much shared memory that few warps fit on a "
        "multiprocessor. It has too little other work while it waits for memory.",
        fix=FIXES["smaller"],
        cost_ns=total_ns,
        removable=time.saving_above_peaks(low, total_ns * (1 - fit)),
        evidence=[
            time.evidence("Kernels with low occupancy", total_ns),
            Evidence("Kernels", number(int(low.sum()))),
            Evidence("Occupancy limit", share_of(fit, 1.0, "on average")),
            Evidence("Registers per thread", number(registers, suffix="on average")),
        ],
        places=time.places(low),
        ranges=time.ranges(low),
        claims={time.device.id: time.kernels.union(low)},
    )


RULE = GpuRule("GD508", "occupancy", "Partial waves and low occupancy", check, severity=Severity.INFO)
