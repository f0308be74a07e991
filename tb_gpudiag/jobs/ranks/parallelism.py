"""Which parallelisms a job uses, as far as its collectives show."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_gpudiag.jobs.ranks.channels import Channels
from tb_gpudiag.jobs.ranks.operations import RankOperations
from tb_gpudiag.jobs.ranks.waits import Waits

DDP: Final = "DDP"
FSDP: Final = "FSDP"
TENSOR: Final = "tensor"
PIPELINE: Final = "pipeline"
EXPERT: Final = "expert"

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
    sharded = {"all_gather", "reduce_scatter"} <= has
    if sharded:
        found.append(FSDP)
    elif np.isin(of[kinds == "all_reduce"], list(tensor), invert=True).any():
        found.append(DDP)
    if tensor:
        found.append(TENSOR)
    if has & {"send", "recv", "send_recv"}:
        found.append(PIPELINE)
    if "all_to_all" in has:
        found.append(EXPERT)
    return found


def tensor_channels(operations: RankOperations, channels: Channels, waits: Waits) -> set[int]:
    """Find channels with many all-reduces that overlap with nothing and have computing between them."""
    found = set()
    reduced = np.flatnonzero(operations.of_kinds({"all_reduce"})[waits.last_row])
    of = channels.of[waits.last_row[reduced]]
    for channel in np.unique(of).tolist():
        own = reduced[of == channel]
        rows = waits.last_row[own]
        length = operations.end_ns[rows] - operations.start_ns[rows]
        exposed = operations.exposed_ns[rows].sum() >= _BLOCKING_SHARE * max(1, int(length.sum()))
        steps = max(1, len(np.unique(operations.step.code[rows])))
        several = len(own) >= 4 * steps
        between = float((operations.kernels[rows] > 0).mean())
        if exposed and several and between >= _BETWEEN:
            found.add(channel)
    return found
