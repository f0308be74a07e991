"""Constants and evidence shared by the rules about copies."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, intersect, subtract
from tb_gpudiag.facts.core.transfers import LEAST_FOR_SPEED, Transfers
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Beside
from tb_gpudiag.facts.waiting.job_kind import JobKind
from tb_gpudiag.rules.answer import Evidence
from tb_gpudiag.rules.rule import Claimed, fix_code
from tb_gpudiag.wording.quantity import bandwidth

_CODE = fix_code("tb_gpudiag.rules.transfers.pageable_copies")

# Reading back a loss or a few statistics is a copy too, but it costs a wait (host_sync), whatever memory it
# copies to. From about 64 KiB the transfer itself takes longer than the call.
LEAST_BYTES = 64 * 1024


def waits_with(host: Host, blocking: Int64, calls: Int64) -> Bool:
    """Mask of the blocking calls that are among these calls, or in an operator with one of them, shape
    (b,)."""
    own = host.operator[calls]
    return np.isin(blocking, calls) | np.isin(host.operator[blocking], own[own != NONE])


def exposed_time(facts: Facts, copies: Bool | Int64, claimed: Claimed) -> Intervals:
    """When these copies run, the busiest GPU computes nothing, and no earlier finding claims the time."""
    ran = facts.transfers.ran(copies, facts.window)
    return subtract(intersect(ran, facts.gpu.busy.copying), claimed.get(facts.gpu.id, EMPTY))


def beside(transfers: Transfers, chosen: Bool) -> Beside:
    """Let these copies between host and GPU run beside all other work."""
    to_device, to_host = (
        transfers.event[chosen & way].tolist() for way in (transfers.to_device, transfers.to_host)
    )
    return Beside(tuple(to_device), tuple(to_host))


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


def copy_from_pinned(job: JobKind) -> str:
    """Code that copies batches from pinned memory: a DataLoader pins them, if the job has one."""
    return _CODE["loader" if job.loader else "buffer"]
