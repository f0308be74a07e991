"""GD508: kernels whose blocks leave multiprocessors partly empty."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.intervals import EMPTY, coverage
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.multiprocessors import Occupancy, occupancy
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
from tb_gpudiag.rules.shared.kernel_time import KernelTime, kernel_time
from tb_gpudiag.trace.events import Bool
from tb_gpudiag.trace.vocabulary.kernel_families import Family
from tb_gpudiag.wording.format import count, share, time_ns

# Public traces of healthy training of convolutional nets lose 4 to 6 % to last waves, and have below 1 % in
# kernels of low occupancy.
LEAST_SHARE = 0.10

# After four waves a last one that is half empty costs an eighth, and blocks no longer run in step anyway.
MOST_WAVES = 4

# Below half of the warps a multiprocessor may have too little to do while it waits for memory.
LOW = 0.5

# Shorter kernels are about launching.
SHORTEST_NS = 20_000

# These wait for memory, and it takes many warps to hide that. Kernels on tensor cores run well with few.
MEMORY_FAMILIES = (Family.ELEMENTWISE, Family.REDUCTION, Family.NORMALISATION, Family.COPY, Family.OTHER)

_SIZES = """# Sizes whose tiles are a multiple of the multiprocessors (132 on an H100, 108 on an A100):
batch_size = 132 * tiles_per_multiprocessor // tiles_per_item     # try the neighbours, and measure
# Or more waves, where one more matters less: a larger batch.
# Or a kernel with other tiles:
model = torch.compile(model, mode="max-autotune")"""

_SMALLER = """# A kernel of your own: fewer registers, or blocks of another size
__launch_bounds__(256, 4)                        # CUDA: at least four blocks a multiprocessor
kernel[grid](..., num_warps=4, num_stages=2)     # Triton: fewer stages need less shared memory
triton.Config({"BLOCK": 512}, num_warps=4)       # let autotune choose among several"""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Last waves of matrix kernels that fill part of the GPU, and kernels limited by memory that registers or
    shared memory keep from running enough warps."""
    time = kernel_time(facts.device, facts.window, facts.work, facts.host)
    if time is None:
        return NO_GPU
    has = facts.multiprocessor(time.device.id)
    if has is None:
        return CannotTell("the trace does not say what this GPU's multiprocessors have")
    held = occupancy(time.kernels, has)
    if not held.blocks.any():
        return CannotTell("the trace does not say what its kernels' blocks need")
    kernels = time.kernels
    long = kernels.duration_ns >= SHORTEST_NS
    already = claimed.get(time.device.id, EMPTY)
    long[long] = coverage(already, kernels.start_ns[long], kernels.end_ns[long]) == 0
    tail = long & kernels.matrix & (held.waves > 1) & (held.waves <= MOST_WAVES)
    low = long & np.isin(kernels.family, np.array(MEMORY_FAMILIES, np.uint8))
    low &= held.limit & (held.share < LOW) & (held.waves >= 1)
    found = [f for f in (_last_waves(time, held, tail), _few_warps(time, held, low)) if f is not None]
    return found or Clear(
        f"last waves that leave multiprocessors empty cost {time.of_window(_empty_ns(time, held, tail))} of "
        f"the step window; kernels with few warps take {time.of_window(time.total_ns(low))}"
    )


def _empty_ns(time: KernelTime, held: Occupancy, tail: Bool) -> int:
    waves = held.waves[tail]
    empty = time.kernels.duration_ns[tail] * (np.ceil(waves) - waves) / np.ceil(waves)
    return min(int(empty.sum()), time.total_ns(tail))  # side by side they waste it once


def _last_waves(time: KernelTime, held: Occupancy, tail: Bool) -> Finding | None:
    cost_ns = _empty_ns(time, held, tail)
    if time.share(cost_ns) < LEAST_SHARE:
        return None
    weight = time.kernels.duration_ns[tail]
    return Finding(
        title=f"Last waves leave multiprocessors empty for {time.of_window(cost_ns)} of the time",
        summary="These kernels have a few more blocks than the GPU runs at once. The rest runs alone, in as "
        "much time as a full wave, and most multiprocessors wait for it.",
        fix=Fix(
            "Choose sizes whose blocks fill whole waves, or so many that one more does not matter.",
            _SIZES,
            "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns, "estimate"),
        evidence=[
            Evidence("such kernels", f"{time.figure(tail)}, {count(int(tail.sum()))}"),
            Evidence("multiprocessors empty in last waves, as time of the whole GPU", time_ns(cost_ns)),
            Evidence("waves", f"{np.average(held.waves[tail], weights=weight):.2f} on average"),
        ],
        places=time.places(tail),
        ranges=time.ranges(tail),
        claims={time.device.id: time.kernels.union(tail)},
    )


def _few_warps(time: KernelTime, held: Occupancy, low: Bool) -> Finding | None:
    total_ns = time.total_ns(low)
    if time.share(total_ns) < LEAST_SHARE:
        return None
    weight = time.kernels.duration_ns[low]
    fit = float(np.average(held.share[low], weights=weight))
    registers = float(np.average(time.kernels.registers[low], weights=weight))
    return Finding(
        title=f"Kernels of which few warps fit on a multiprocessor take {time.of_window(total_ns)} of the "
        "time",
        summary="Their blocks need so many registers, or so much shared memory, that a multiprocessor has "
        "little to do while it waits for memory.",
        fix=Fix(
            "Make blocks need less, if the kernel is your own.",
            _SMALLER,
            "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#occupancy",
        ),
        cost_ns=total_ns,
        saving=Saving(
            0, round(total_ns * (1 - float(np.average(held.share[low], weights=weight)))), "estimate"
        ),
        evidence=[
            Evidence("such kernels", f"{time.figure(low)}, {count(int(low.sum()))}"),
            Evidence(
                "warps that fit, of those a multiprocessor can hold",
                f"{share(fit)} on average",
            ),
            Evidence("registers of a thread", f"{registers:.0f} on average"),
        ],
        places=time.places(low),
        ranges=time.ranges(low),
        claims={time.device.id: time.kernels.union(low)},
    )


RULE = Rule("GD508", "occupancy", "Multiprocessors partly empty", check, severity=Severity.INFO)
