"""Constants and evidence shared by the rules about copies."""

from __future__ import annotations

from tb_gpudiag.facts.core.transfers import Transfers
from tb_gpudiag.rules.rule import Evidence
from tb_gpudiag.trace.events import NONE, Int64
from tb_gpudiag.wording.quantity import bandwidth

# Reading back a loss or a few statistics is a copy too, but it costs a wait (host_sync), whatever memory it
# copies to. From about 64 KiB the transfer itself takes longer than the call.
LEAST_BYTES = 64 * 1024

# A pinned copy of less than this does not reach the bus's speed.
LEAST_FOR_SPEED = 1 << 20


def speed(transfers: Transfers, copies: Int64) -> list[Evidence]:
    """Bandwidth of these copies, next to the best that large pinned copies of the trace reach."""
    duration_ns = transfers.end_ns - transfers.start_ns
    copies = copies[transfers.bytes[copies] != NONE]
    size, time = int(transfers.bytes[copies].sum()), int(duration_ns[copies].sum())
    if not time:
        return []
    pinned = (
        (transfers.to_device | transfers.to_host)
        & ~transfers.pageable
        & (transfers.bytes >= LEAST_FOR_SPEED)
        & (duration_ns > 0)
    )
    best = (transfers.bytes[pinned] / duration_ns[pinned]).max(initial=0)  # bytes per ns are GB/s
    details = (bandwidth(best, "reached by pinned copies of this trace"),) if best else ()
    return [Evidence("Effective bandwidth", bandwidth(size / time), details)]
