"""GD302: copies between the GPU and pageable host memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Float64
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import merged, union
from tb_gpudiag.facts.core.transfers import Transfers, in_window, pinned_rates
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Removal, Shorter
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Fix, Removable, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, GpuRule, fix_code
from tb_gpudiag.rules.shared.copies import LEAST_BYTES, beside, copy_from_pinned, exposed_time, waits_with
from tb_gpudiag.rules.shared.lost_time import longest, lost_time, places
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import share
from tb_gpudiag.wording.quantity import bandwidth, duration, number, size

CODE = fix_code(__name__)

# The effect of a fix of less than this could not be measured (see host_sync.py).
LEAST_SHARE = levels.MEASURABLE

# Without operators the trace does not show what the host does in long gaps: the copies may be a large part of
# what the GPU does in a step, and a small one of a window that is mostly something else.
LEAST_BUSY_SHARE = levels.SIZEABLE


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find time in which such copies run exposed, and idle time inside the calls that issue them."""
    device = facts.gpu
    window, transfers = facts.window, facts.transfers
    large = (transfers.bytes >= LEAST_BYTES) | (transfers.bytes == NONE)
    chosen = transfers.pageable & large & in_window(transfers, device.id, window)
    lost = lost_time(facts, claimed)
    alone = exposed_time(facts, chosen, claimed)
    issuing = lost.of(Cause.LAUNCH) & np.isin(
        lost.launch, transfers.launch[chosen & (transfers.launch != NONE)]
    )
    cost_ns = alone.total + lost.total_ns(issuing)
    cost_share = share(cost_ns, lost.window_ns)
    busy_ns = lost.window_ns - device.ledger.idle_ns(window)
    of_busy = not facts.recorded.operators and alone.total >= LEAST_BUSY_SHARE * max(1, busy_ns)
    small = lost.share(cost_ns) < LEAST_SHARE
    if small and not of_busy:
        return Clear(f"pageable copies cost {cost_share} of the step window")
    stretches = merged(alone, lost.stretches(issuing))
    copied = int(np.maximum(transfers.bytes[chosen], 0).sum())
    copying_ns = int((transfers.end_ns - transfers.start_ns)[chosen].sum())
    rate = (bandwidth(copied / copying_ns),) if copied and copying_ns else ()
    directions = (("from", transfers.to_device), ("to", transfers.to_host))
    ways = " and ".join(way for way, some in directions if some[chosen].any()) or "within"
    return Finding(
        title=f"Copies {ways} pageable memory cost {cost_share} of the time"
        if not small
        else f"Copies {ways} pageable memory take {share(alone.total, busy_ns)} of the GPU's busy time",
        summary="The GPU cannot access pageable host memory directly: the driver copies piece by piece "
        "through its own buffer, the call returns late, and nothing overlaps. From pinned memory, the same "
        "copy is faster and overlaps with computing.",
        fix=Fix(
            "Pin the host memory, and copy with non_blocking=True.",
            f"{copy_from_pinned(facts.job)}\n\n{CODE['to_host']}",
            "https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
        ),
        cost_ns=cost_ns,
        evidence=[
            Evidence.of_window("Time without computing", cost_ns, lost.window_ns),
            Evidence("Exposed copies", duration(alone.total)),
            Evidence("Idle inside copy calls", duration(lost.total_ns(issuing))),
            Evidence("Pageable copies", number(int(chosen.sum()), "copy", "copies"), (size(copied), *rate)),
        ],
        places=places(facts.host, transfers.launch[chosen], transfers.in_call_ns[chosen], by_operator=True),
        ranges=longest(stretches, device.id),
        claims={device.id: stretches},
        removable=_removable(facts, transfers, chosen),
        severity=Severity.INFO.when(small),
    )


def _removable(facts: Facts, transfers: Transfers, chosen: Bool) -> Removable:
    """With pinned memory, the host need not wait for the copies, nor copy them into the driver's buffer
    inside the call, as it does on any stream. They run at the speed of the link, beside computing and beside
    copies of the other direction. chosen: mask of the copies, shape (t,)."""
    blocking = facts.host_time.blocking
    calls = np.unique(transfers.launch[chosen & (transfers.launch != NONE)])
    without = Removal(
        union(transfers.call_start_ns[chosen], transfers.call_end_ns[chosen]),
        unblocked=tuple(blocking[waits_with(facts.host, blocking, calls)].tolist()),
        beside=beside(transfers, chosen),
    )
    ways = transfers.to_device, transfers.to_host
    rates = [pinned_rates(transfers, way, facts.gpu.properties) for way in ways]
    slow, fast = (
        _faster(transfers, chosen, np.select(ways, each, np.inf)) for each in zip(*rates, strict=True)
    )
    return Removable(replace(without, shorter=fast), least=replace(without, shorter=slow))


def _faster(transfers: Transfers, chosen: Bool, bytes_per_ns: Float64) -> Shorter:
    """These copies at that rate, shape (t,). Those of unknown sizes, and within the GPU, stay as they are."""
    known = chosen & (transfers.bytes > 0) & np.isfinite(bytes_per_ns)
    needed_ns = transfers.bytes[known] / bytes_per_ns[known]
    left = needed_ns / np.maximum(1, (transfers.end_ns - transfers.start_ns)[known])
    return Shorter(transfers.event[known], np.maximum(0.0, 1 - left))


RULE = GpuRule("GD302", "pageable_copies", "Pageable copies", check, error_share=levels.LARGE)
