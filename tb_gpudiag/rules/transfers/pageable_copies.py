"""GD302: copies between the GPU and pageable host memory."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import EMPTY, intersect, subtract, union
from tb_gpudiag.facts.core.transfers import in_window
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.rule import (
    NO_GPU,
    NOTHING_CLAIMED,
    Answer,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Fix,
    Rule,
    Saving,
)
from tb_gpudiag.rules.shared.copies import LEAST_BYTES
from tb_gpudiag.rules.shared.lost_time import longest, lost_time, places
from tb_gpudiag.trace.events import NONE
from tb_gpudiag.wording.format import count, share, size_bytes, time_ns

# Below this the finding could not be measured after the fix (see host_sync.py).
LEAST_SHARE = 0.02

_CODE = """loader = DataLoader(dataset, ..., pin_memory=True)   # batches arrive in pinned memory
for x, y in loader:
    x = x.to(device, non_blocking=True)               # returns at once, copies beside the computing
    y = y.to(device, non_blocking=True)

# A buffer of your own: make it once, pinned.
buffer = torch.empty(shape, pin_memory=True)
buffer.copy_(out, non_blocking=True)                  # to the host: wait for an event before reading it"""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Time in which such a copy was not hidden under computing, and idle time inside the call that issued
    it."""
    device = facts.device
    if device is None:
        return NO_GPU
    window, transfers = facts.window, facts.transfers
    large = (transfers.bytes >= LEAST_BYTES) | (transfers.bytes == NONE)
    chosen = transfers.pageable & large & in_window(transfers, device.id, window)
    lost = lost_time(facts.window, facts.device, facts.host_pieces, claimed)
    exposed = intersect(transfers.ran(chosen, window), device.busy.copying)
    exposed = subtract(exposed, claimed.get(device.id, EMPTY))
    issuing = lost.of(Cause.LAUNCH) & np.isin(
        lost.launch, transfers.launch[chosen & (transfers.launch != NONE)]
    )
    cost_ns = exposed.total + lost.total_ns(issuing)
    if lost.share(cost_ns) < LEAST_SHARE:
        return Clear(
            f"copies from or to pageable memory cost {share(cost_ns, lost.window_ns)} of the step window"
        )
    stretches = union(np.r_[exposed.start, lost.start_ns[issuing]], np.r_[exposed.end, lost.end_ns[issuing]])
    size = int(np.maximum(transfers.bytes[chosen], 0).sum())
    taken_ns = int((transfers.end_ns - transfers.start_ns)[chosen].sum())
    rate = f", {size / taken_ns:.1f} GB/s" if size and taken_ns else ""
    directions = (("from", transfers.to_device), ("to", transfers.to_host))
    ways = " and ".join(way for way, some in directions if some[chosen].any()) or "within"
    return Finding(
        title=f"Copies {ways} pageable memory cost {share(cost_ns, lost.window_ns)} of the time",
        summary="The GPU cannot reach ordinary host memory directly: the driver copies piece by piece "
        "through a buffer of its own, the call returns late, and nothing overlaps. With pinned memory the "
        "same copy is faster and runs beside the computing.",
        fix=Fix(
            "Pin the host memory, and copy with non_blocking=True.",
            _CODE,
            "https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            Evidence("pageable copies", f"{count(int(chosen.sum()))}, {size_bytes(size)}{rate}"),
            Evidence("not hidden under computing", time_ns(exposed.total)),
            Evidence("GPU idle inside the copy calls", time_ns(lost.total_ns(issuing))),
        ],
        places=places(facts.host, transfers.launch[chosen], transfers.in_call_ns[chosen], by_operator=True),
        ranges=longest(stretches, device.id),
        claims={device.id: stretches},
    )


RULE = Rule("GD302", "pageable_copies", "Copies from pageable memory", check, error_share=0.20)
