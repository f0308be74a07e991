"""GD302: copies between the GPU and pageable host memory."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import merged
from tb_gpudiag.facts.core.transfers import Transfers, in_window
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Removal
from tb_gpudiag.rules.fix_code import fix_code
from tb_gpudiag.rules.rule import Claimed, Clear, Evidence, Finding, Fix, Removable, Rule, RuleAnswer, Saving
from tb_gpudiag.rules.shared.copies import LEAST_BYTES, copy_from_pinned, exposed_time, waits_with
from tb_gpudiag.rules.shared.lost_time import longest, lost_time, places
from tb_gpudiag.wording.format import share
from tb_gpudiag.wording.quantity import bandwidth, duration, number, size

CODE = fix_code(__name__)

# The effect of a fix of less than this could not be measured (see host_sync.py).
LEAST_SHARE = 0.02

# Pinned memory copies at 12 GB/s on PCIe 3.0 x16, the slowest link of GPUs in servers. The two generations
# after it copy at 25 and 50 GB/s.
PINNED_BYTES_PER_NS = 12


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
    if lost.share(cost_ns) < LEAST_SHARE:
        return Clear(f"pageable copies cost {cost_share} of the step window")
    stretches = merged(alone, lost.stretches(issuing))
    copied = int(np.maximum(transfers.bytes[chosen], 0).sum())
    copying_ns = int((transfers.end_ns - transfers.start_ns)[chosen].sum())
    rate = (bandwidth(copied / copying_ns),) if copied and copying_ns else ()
    directions = (("from", transfers.to_device), ("to", transfers.to_host))
    ways = " and ".join(way for way, some in directions if some[chosen].any()) or "within"
    return Finding(
        title=f"Copies {ways} pageable memory cost {cost_share} of the time",
        summary="The GPU cannot access pageable host memory directly: the driver copies piece by piece "
        "through its own buffer, the call returns late, and nothing overlaps. From pinned memory, the same "
        "copy is faster and overlaps with computing.",
        fix=Fix(
            "Pin the host memory, and copy with non_blocking=True.",
            f"{copy_from_pinned(facts.job)}\n\n{CODE['to_host']}",
            "https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
        ),
        cost_ns=cost_ns,
        # Without a replay. The low end: copies from pinned memory are as exposed as these. The high end is
        # not a bound: a host that no longer waits for the copies also gets ahead with what follows.
        saving=Saving(round(cost_ns * _faster(copied, copying_ns)), cost_ns, "estimate"),
        evidence=[
            Evidence.of_window("Time without computing", cost_ns, lost.window_ns),
            Evidence("Exposed copies", duration(alone.total)),
            Evidence("Idle inside copy calls", duration(lost.total_ns(issuing))),
            Evidence("Pageable copies", number(int(chosen.sum()), "copy", "copies"), (size(copied), *rate)),
        ],
        places=places(facts.host, transfers.launch[chosen], transfers.in_call_ns[chosen], by_operator=True),
        ranges=longest(stretches, device.id),
        claims={device.id: stretches},
        removable=_removable(
            facts.host, transfers, chosen, facts.host_time.blocking, _faster(copied, copying_ns)
        ),
    )


def _removable(host: Host, transfers: Transfers, chosen: Bool, blocking: Int64, faster: float) -> Removable:
    """With pinned memory, copies take less time, and the host need not wait for them. At most, they all run
    under computing.

    chosen: mask of the copies, shape (t,). blocking: the calls that wait for the GPU. faster: share of the
    copies' time that pinned memory saves.
    """
    calls = np.unique(transfers.launch[chosen & (transfers.launch != NONE)])
    waits = tuple(blocking[waits_with(host, blocking, calls)].tolist())
    # Where all copies have one size, dropping some of them saves as much as making all of them faster.
    fewer = calls[np.diff(np.floor(np.arange(len(calls) + 1) * faster)) > 0]
    return Removable(
        Removal(unblocked=waits, dropped=tuple(fewer.tolist())),
        Removal(unblocked=waits, dropped=tuple(calls.tolist())),
    )


def _faster(copied: int, copying_ns: int) -> float:
    """Share of the copies' time that pinned memory saves, 0 to 1; 0 if their sizes are unknown."""
    if not copied or not copying_ns:
        return 0.0
    return max(0.0, 1 - copied / PINNED_BYTES_PER_NS / copying_ns)


RULE = Rule("GD302", "pageable_copies", "Pageable copies", check, needs_gpu=True, error_share=0.20)
