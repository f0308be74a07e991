"""What the rules about copies share: which are large, and how fast they run."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.rule import Evidence
from tb_gpudiag.trace.events import NONE, Int64

# Reading a loss or a few statistics back is a copy too, but its price is the wait (host_sync), not the memory
# it lands in. From about 64 KiB on the bytes themselves take longer than the call.
LEAST_BYTES = 64 * 1024

# A pinned copy of less than this does not reach the bus's speed.
LEAST_FOR_SPEED = 1 << 20


def speed(facts: Facts, copies: Int64) -> list[Evidence]:
    """The bytes a second of these copies, beside the best that large pinned ones of the trace reach."""
    transfers = facts.transfers
    duration_ns = transfers.end_ns - transfers.start_ns
    copies = copies[transfers.bytes[copies] != NONE]
    size, time = int(transfers.bytes[copies].sum()), int(duration_ns[copies].sum())
    if not time:
        return []
    rate = f"{size / time:.1f} GB/s"
    pinned = (
        (transfers.to_device | transfers.to_host)
        & ~transfers.pageable
        & (transfers.bytes >= LEAST_FOR_SPEED)
        & (duration_ns > 0)
    )
    if pinned.any():
        best = float((transfers.bytes[pinned] / duration_ns[pinned]).max())
        rate += f"; pinned copies of this trace reach {best:.1f} GB/s"
    return [Evidence("effective bandwidth", rate)]
