"""Occupancy: how many blocks of a kernel a multiprocessor runs at once, from what they need and what it has,
and in how many waves the blocks run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.device_properties import DeviceProperties
from tb_gpudiag.facts.kernels.kernels import Kernels

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

    Some recorders write another number where that of threads should be.
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


@dataclass(frozen=True)
class Occupancy:
    """Theoretical occupancy of each of the Kernels. Shape (k,) each; 0 where the trace does not say."""

    blocks: Int64  # most resident blocks per multiprocessor
    limit: Bool  # registers or shared memory limit them
    share: np.ndarray[Any, np.dtype[np.float64]]  # of the multiprocessor's warps, 0 to 1
    waves: np.ndarray[Any, np.dtype[np.float64]]  # all blocks, divided by those that run at once


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
