"""GD304: copies between host and GPU that do not overlap with computing."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.core.transfers import in_window
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Removal
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Removable, RuleAnswer
from tb_gpudiag.rules.rule import Claimed, GpuRule, page_fixes
from tb_gpudiag.rules.shared.copies import beside, exposed_time, speed, waits_with
from tb_gpudiag.rules.shared.lost_time import longest, places
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import share
from tb_gpudiag.wording.quantity import number, share_of, size

FIXES = page_fixes(__name__)

# Public traces lose up to 3%. A batch that is copied while the GPU computes the previous one costs nothing;
# from 5%, the second stream that this takes is worth the code.
LEAST_SHARE = levels.NOTICEABLE


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find time in which copies from and to the host run, nothing computes, and no earlier finding claims.

    A fix lets them run beside the computing. They still take their time, so where there is little to hide
    them under, it saves little.
    """
    device = facts.gpu
    window, transfers = facts.window, facts.transfers
    chosen = in_window(transfers, device.id, window) & (transfers.to_device | transfers.to_host)
    alone = exposed_time(facts, chosen, claimed)
    cost_ns = alone.total
    cost_share = share(cost_ns, window.duration_ns)
    if cost_ns < LEAST_SHARE * window.duration_ns or not cost_ns:
        return Clear(f"exposed copies from and to the host take {cost_share} of the step window")
    copies = np.flatnonzero(chosen)
    taken_ns = transfers.end_ns - transfers.start_ns
    in_ns, all_ns = int(taken_ns[chosen & transfers.to_device].sum()), int(taken_ns[chosen].sum())
    copied = float(np.maximum(transfers.bytes[copies], 0).sum())
    calls = transfers.launch[copies[transfers.launch[copies] != NONE]]
    blocking = facts.host_time.blocking
    waits = tuple(blocking[waits_with(facts.host, blocking, calls)].tolist())
    return Finding(
        title=f"Exposed copies take {cost_share} of the time",
        summary="While these copies between host and GPU run, the GPU computes nothing. On their own stream, "
        "ahead of time, they would overlap with computing.",
        fix=FIXES["ahead"],
        cost_ns=cost_ns,
        evidence=[
            Evidence.of_window("Exposed", cost_ns, window.duration_ns),
            Evidence(
                "Exposed share", share_of(cost_ns, transfers.ran(chosen, window).total, "of the copying time")
            ),
            Evidence("Copies", number(len(copies), "copy", "copies"), (size(copied),)),
            Evidence("Copies to the GPU", share_of(in_ns, all_ns, "of their total time")),
            *speed(transfers, copies),
        ],
        places=places(facts.host, transfers.launch[copies], taken_ns[copies], by_operator=True),
        ranges=longest(alone, device.id),
        claims={device.id: alone},
        removable=Removable(Removal(unblocked=waits, beside=beside(transfers, chosen))),
    )


RULE = GpuRule("GD304", "exposed_copies", "Exposed copies", check, error_share=levels.LARGE)
