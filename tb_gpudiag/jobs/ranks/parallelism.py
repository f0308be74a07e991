"""Which parallelisms a job uses, as far as its collectives show."""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.jobs.ranks.channels import Channels
from tb_gpudiag.jobs.ranks.operations import RankOperations
from tb_gpudiag.jobs.ranks.waits import Waits
from tb_gpudiag.vocabulary import collective_kinds
from tb_gpudiag.vocabulary.collective_kinds import DDP, EXPERT, PIPELINE, TENSOR, parallelism_of
from tb_gpudiag.vocabulary.collective_kinds import FULLY_SHARDED as FSDP

SHARDED: Final = "sharded"
"""Of weights, of an optimizer, or of sequences: the traces do not say."""

_SAID_BY_CALLERS: Final = (collective_kinds.OPTIMIZER, collective_kinds.FUNCTIONAL)

RING: Final = "ring"
"""Keys and values of long sequences go round the ranks."""

# Most calls of one kind decide: a norm or a metric may be reduced elsewhere.
_MOST: Final = 0.5
# Tensor-parallel layers wait for each all-reduce. DDP overlaps its all-reduces with the backward pass.
_BLOCKING_SHARE: Final = 0.9
# Something computes between the all-reduces of tensor-parallel layers. All-reduces of gradients without
# overlap follow one another directly.
_BETWEEN: Final = 0.8


def parallelisms(operations: RankOperations, channels: Channels, waits: Waits) -> list[str]:
    """Return the parallelisms in a fixed order."""
    if not len(waits):
        return []
    row = waits.last_row
    kinds = np.array(operations.kind.texts, object)[operations.kind.code[row]]
    has = set(kinds.tolist())
    of = channels.of[row]
    found = []
    tensor = tensor_channels(operations, channels, waits)
    sharded = _sharded(operations, row, has)
    if sharded and sharded != TENSOR:
        found.append(sharded)
    elif np.isin(of[kinds == "all_reduce"], list(tensor), invert=True).any():
        found.append(DDP)
    if tensor or sharded == TENSOR:
        found.append(TENSOR)
    if channels.is_ring:
        found.append(RING)
    elif channels.is_pipeline or "send_recv" in has:
        found.append(PIPELINE)
    if "all_to_all" in has:
        found.append(EXPERT)
    return found


def _sharded(operations: RankOperations, row: Int64, has: set[str]) -> str:
    """Return what all-gathers and reduce-scatters are for; "" if there are none. row: of each collective."""
    chosen = row[operations.of_kinds({"all_gather", "reduce_scatter"})[row]]
    callers = Counter(operations.caller[i] for i in chosen.tolist())
    if callers[collective_kinds.FSDP]:
        return FSDP
    for caller in _SAID_BY_CALLERS:
        if callers[caller] > _MOST * len(chosen):
            return parallelism_of("", caller)
    # Embedding tables in shards exchange by all-to-all, and gather what is split by rows.
    return SHARDED if {"all_gather", "reduce_scatter"} <= has and "all_to_all" not in has else ""


def tensor_channels(operations: RankOperations, channels: Channels, waits: Waits) -> set[int]:
    """Find channels whose all-reduces DTensor's layers call, or that have many which overlap with nothing and
    have computing between them."""
    found = set()
    reduced = np.flatnonzero(operations.of_kinds({"all_reduce"})[waits.last_row])
    of = channels.of[waits.last_row[reduced]]
    for channel in np.unique(of).tolist():
        own = reduced[of == channel]
        rows = waits.last_row[own]
        length = operations.end_ns[rows] - operations.start_ns[rows]
        if _by_layers(operations, rows):
            found.add(channel)
            continue
        exposed = operations.exposed_ns[rows].sum() >= _BLOCKING_SHARE * max(1, int(length.sum()))
        steps = max(1, len(np.unique(operations.step.code[rows])))
        several = len(own) >= 4 * steps
        between = float((operations.kernels[rows] > 0).mean())
        if exposed and several and between >= _BETWEEN:
            found.add(channel)
    return found


def _by_layers(operations: RankOperations, rows: Int64) -> bool:
    callers = [operations.caller[row] for row in rows.tolist()]
    return callers.count(collective_kinds.FUNCTIONAL) > _MOST * len(callers)
