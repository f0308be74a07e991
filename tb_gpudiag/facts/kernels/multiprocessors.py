"""How much of the GPU kernels use: the blocks that a multiprocessor runs at once, their waves, and what small
kernels leave unused.
"""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Float64, Int64
from tb_gpudiag.facts.core.device_properties import DeviceProperties
from tb_gpudiag.facts.core.intervals import Intervals, distinct, subtract, union
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.kernel_families import Family

# Most resident blocks per multiprocessor, by compute capability: CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability".
MOST_BLOCKS = {
    (7, 0): 32,
    (7, 5): 16,
    (8, 0): 32,
    (8, 6): 16,
    (8, 7): 16,
    (8, 9): 24,
    (9, 0): 32,
    (10, 0): 32,
    (10, 3): 32,
    (11, 0): 24,
    (12, 0): 24,
    (12, 1): 24,
}

_WARP = 32
_REGISTER_UNIT = 256  # registers are allocated to warps in units of this many
_WARP_UNIT = 4  # a multiprocessor has four partitions with equally many warps
_SYSTEM_SHARED_BYTES = 1024  # per block, since compute capability 8.0

# A stream with less computing than this share of the largest one's fits under the rest of it, so it hides
# nothing.
LARGE_STREAM = levels.HALF


@dataclass(frozen=True)
class Multiprocessor:
    """Resources of one multiprocessor of a GPU."""

    warps: int
    registers: int
    shared_bytes: int
    blocks: int
    system_shared_bytes: int


def multiprocessor(properties: DeviceProperties) -> Multiprocessor | None:
    """Return the resources of a multiprocessor of this device; None where the trace does not say.

    Some recorders write another number in place of the number of threads.
    """
    capability, threads = properties.compute_capability, properties.threads
    if capability not in MOST_BLOCKS or not properties.registers or not properties.shared_bytes:
        return None
    if not 1024 <= threads <= 4096 or threads % _WARP:
        return None
    system = _SYSTEM_SHARED_BYTES if capability >= (8, 0) else 0
    return Multiprocessor(
        threads // _WARP, properties.registers, properties.shared_bytes, MOST_BLOCKS[capability], system
    )


@dataclass(frozen=True, eq=False)
class Occupancy:
    """Theoretical occupancy of each of the Kernels. Shape (k,) each; 0 where the trace does not say."""

    blocks: Int64  # most resident blocks per multiprocessor
    limit: Bool  # registers or shared memory limit them
    share: Float64  # of the multiprocessor's warps, 0 to 1
    waves: Float64  # all blocks, divided by those that run at once


def occupancy(kernels: Kernels, has: Multiprocessor) -> Occupancy:
    """Compute the occupancy of kernels on multiprocessors with these resources."""
    warps, registers = kernels.warps_per_block.astype(np.int64), kernels.registers.astype(np.int64)
    shared = kernels.shared_bytes.astype(np.int64)
    known = (
        kernels.is_kernel
        & (warps > 0)
        & (registers > 0)
        & (shared != NONE)
        & ~np.isnan(kernels.blocks_per_sm)
    )
    one = np.maximum(warps, 1)
    by_warps = np.minimum(has.warps // one, has.blocks)
    of_warp = -(-np.maximum(registers, 1) * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    by_registers = has.registers // of_warp // _WARP_UNIT * _WARP_UNIT // one
    by_shared = has.shared_bytes // np.maximum(np.maximum(shared, 0) + has.system_shared_bytes, 1)
    blocks = np.minimum(np.minimum(by_warps, by_registers), by_shared)
    known &= blocks > 0
    blocks = np.where(known, blocks, 0)
    limit = known & (np.minimum(by_registers, by_shared) < by_warps)
    waves = np.where(
        known, np.nan_to_num(kernels.blocks_per_sm).astype(np.float64) / np.maximum(blocks, 1), 0.0
    )
    return Occupancy(blocks, limit, blocks * warps / has.warps, waves)


def unused_ns(kernels: Kernels, small: Bool) -> Int64:
    """Return the whole-GPU time that small kernels leave unused, shape (k,); 0 for other kernels.

    A kernel uses a multiprocessor for each of its blocks, up to all of them. Kernels that run at the same
    time add up, and where they fill the GPU, nothing is unused. What several small kernels leave unused
    together is divided equally among them. Communication kernels hold a multiprocessor for each of their
    blocks, too: kernels that run beside them are often made for the rest. Copies and memsets use none.
    """
    unknown = np.where(_computing(kernels), 1.0, 0.0)
    blocks = np.minimum(kernels.blocks_per_sm, 1)
    used = np.where(kernels.is_kernel, np.where(np.isnan(blocks), unknown, blocks), 0.0)
    times, segments = _segments(kernels)
    filled = _running(used, len(times), segments)
    number = _running(small.astype(np.float64), len(times), segments)
    each = np.where(number > 0.5, np.maximum(1 - filled, 0) / np.maximum(number, 1), 0) * np.diff(
        times, append=0
    )
    before = np.r_[0.0, np.cumsum(each)]
    first, last = segments
    return np.where(small, np.rint(before[last] - before[first]), 0).astype(np.int64)


def alone(kernels: Kernels) -> Intervals:
    """Return when exactly one kernel computes. Communication kernels, copies and memsets do not count."""
    computing = _computing(kernels)
    times, segments = _segments(kernels)
    number = _running(computing.astype(np.float64), len(times), segments)
    one = np.flatnonzero(np.rint(number) == 1)
    return union(times[one], times[np.minimum(one + 1, len(times) - 1)])


def exposed(kernels: Kernels, chosen: Bool) -> Intervals:
    """Return when at least one of the chosen runs and is not hidden.

    The streams with the most computing determine how long a step takes. What runs under their other kernels
    costs nothing.
    """
    computing = _computing(kernels)
    _, of_stream = np.unique(kernels.stream, return_inverse=True)
    time_ns = np.bincount(of_stream, weights=np.where(computing, kernels.duration_ns, 0))
    large = time_ns >= LARGE_STREAM * time_ns.max(initial=0)
    return subtract(kernels.union(chosen), kernels.union(large[of_stream] & computing & ~chosen))


def _computing(kernels: Kernels) -> Bool:
    """Mask of the kernels that are not communication."""
    return kernels.is_kernel & (kernels.family != Family.COLLECTIVE)


def _segments(kernels: Kernels) -> tuple[Int64, tuple[Int64, Int64]]:
    """Return the times at which a kernel starts or ends, and the places of each kernel's start and end."""
    times = distinct(np.concatenate([kernels.start_ns, kernels.end_ns]))
    return times, (np.searchsorted(times, kernels.start_ns), np.searchsorted(times, kernels.end_ns))


def _running(weight: Float64, number: int, segments: tuple[Int64, Int64]) -> Float64:
    """Sum of the weights of the kernels that run from each of the times to the next one."""
    first, last = segments
    change = np.bincount(first, weights=weight, minlength=number)
    change -= np.bincount(last, weights=weight, minlength=number)
    return np.asarray(np.cumsum(change), np.float64)
