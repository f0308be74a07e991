"""GD303: avoidable copies: tensors copied to the host and back, many tiny copies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, Window, clip, intersect, subtract, union
from tb_gpudiag.facts.core.transfers import Transfers, in_window, round_trips
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.loading import batches
from tb_gpudiag.rules.fix_code import fix_code
from tb_gpudiag.rules.rule import (
    NOTHING_CLAIMED,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Fix,
    Rule,
    RuleAnswer,
    Saving,
)
from tb_gpudiag.rules.shared.copies import LEAST_BYTES, speed
from tb_gpudiag.rules.shared.lost_time import ISSUING, Lost, longest, lost_time, places
from tb_gpudiag.wording.format import count, share
from tb_gpudiag.wording.quantity import duration, number, per_step, share_of, size

CODE = fix_code(__name__)

# The effect of a fix of less than this could not be measured (see host_sync.py).
LEAST_SHARE = 0.02

# One or two may be a checkpoint or chance. A job that computes on the host does it in every step.
LEAST_ROUND_TRIPS = 3

# A few scalars per step do no harm, a loop over fields or items does.
LEAST_TINY = 10

_URL = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"


@dataclass(frozen=True)
class _Copies:
    """The device's copies in the step window."""

    host: Host
    transfers: Transfers
    window: Window
    device: DeviceFacts
    there: Bool  # mask of the device's copies that begin in the window, shape (t,) as in Transfers

    def exposed(self, copies: Int64, claimed: Claimed) -> Intervals:
        """When these copies run, nothing computes, and no earlier finding claims the time."""
        ran = self.transfers.ran(copies, self.window)
        return subtract(intersect(ran, self.device.busy.copying), claimed.get(self.device.id, EMPTY))


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find time in which the GPU does not compute from a copy to the host until the tensor is back, and time
    lost to tiny copies to the GPU."""
    device = facts.gpu
    there = in_window(facts.transfers, device.id, facts.window)
    copies = _Copies(facts.host, facts.transfers, facts.window, device, there)
    lost = lost_time(facts, claimed)
    trips = _round_trips(copies, lost, claimed, facts.steps.start_ns)
    if trips is not None:
        own, before = trips.claims[device.id], claimed.get(device.id, EMPTY)
        both = union(np.r_[before.start, own.start], np.r_[before.end, own.end])
        claimed = {**claimed, device.id: both}
        lost = lost_time(facts, claimed)
    tiny = _tiny_copies(copies, lost, claimed, len(facts.steps))
    found = [f for f in (trips, tiny) if f is not None]
    return found or Clear("no tensor is copied to the host and back, and tiny copies cost next to nothing")


def _round_trips(copies: _Copies, lost: Lost, claimed: Claimed, steps_start_ns: Int64) -> Finding | None:
    transfers, window, device = copies.transfers, copies.window, copies.device
    if int((copies.there & transfers.to_host & (transfers.bytes >= LEAST_BYTES)).sum()) < LEAST_ROUND_TRIPS:
        return None
    borders = np.r_[steps_start_ns, batches(copies.host, window).start_ns]
    out, back = round_trips(transfers, copies.there, borders, LEAST_BYTES)
    if len(out) < LEAST_ROUND_TRIPS:
        return None
    spans = union(transfers.start_ns[out], transfers.end_ns[back])
    spans = clip(spans, window.start_ns, window.end_ns)
    idle = union(lost.start_ns, lost.end_ns)
    copying = subtract(device.busy.copying, claimed.get(device.id, EMPTY))
    claim = intersect(spans, union(np.r_[idle.start, copying.start], np.r_[idle.end, copying.end]))
    if lost.share(claim.total) < LEAST_SHARE:
        return None
    copied = int(transfers.bytes[out].sum())
    return _finding(
        copies,
        claim,
        np.r_[out, back],
        title=f"Round trips to the host cost {share(claim.total, lost.window_ns)} of the time",
        summary=f"{count(len(out), 'time')}, a tensor is copied to the host, and then as many bytes are "
        "copied back to the GPU. Meanwhile the GPU computes nothing.",
        fix=Fix("Do on the GPU what the host does with these tensors.", CODE["stay"], _URL),
        evidence=[
            Evidence.of_window("Time without computing", claim.total, lost.window_ns),
            Evidence("Round trips", number(len(out), "round trip"), (size(copied, "each way"),)),
        ],
    )


def _tiny_copies(copies: _Copies, lost: Lost, claimed: Claimed, steps: int) -> Finding | None:
    transfers = copies.transfers
    small = (transfers.bytes != NONE) & (transfers.bytes < LEAST_BYTES)
    tiny = np.flatnonzero(copies.there & transfers.to_device & small & (transfers.launch != NONE))
    if len(tiny) < LEAST_TINY:
        return None
    # Idle time after a synchronization belongs to host_sync, whatever ends the gap.
    late = (
        lost.in_short_dry_gaps
        & lost.of(*ISSUING)
        & (lost.drained_ns == 0)
        & np.isin(lost.launch, transfers.launch[tiny])
    )
    exposed = copies.exposed(tiny, claimed)
    claim = union(np.r_[lost.start_ns[late], exposed.start], np.r_[lost.end_ns[late], exposed.end])
    if lost.share(claim.total) < LEAST_SHARE:
        return None
    median = size(float(np.median(transfers.bytes[tiny])), "median size")
    return _finding(
        copies,
        claim,
        tiny,
        title=f"{count(len(tiny), 'tiny copy', 'tiny copies')} to the GPU cost "
        f"{share(claim.total, lost.window_ns)} of the time",
        summary="Each copies so little that the call takes longer than the copy, and the GPU waits for the "
        "next one.",
        fix=Fix("Pack them into one copy, or create the tensors on the GPU.", CODE["pack"], _URL),
        evidence=[
            Evidence.of_window("Time without computing", claim.total, lost.window_ns),
            Evidence("Idle before tiny copies", duration(lost.total_ns(late))),
            Evidence(
                "Tiny copies", number(len(tiny), "copy", "copies"), (*per_step(len(tiny), steps), median)
            ),
        ],
    )


def _finding(
    copies: _Copies,
    claim: Intervals,
    chosen: Int64,
    *,
    title: str,
    summary: str,
    fix: Fix,
    evidence: list[Evidence],
) -> Finding:
    """claim: the finding's cost; chosen: its copies, as indices of Transfers."""
    transfers = copies.transfers
    time = int((transfers.end_ns - transfers.start_ns)[chosen].sum())
    exposed_ns = copies.exposed(chosen, NOTHING_CLAIMED).total
    return Finding(
        title=title,
        summary=summary,
        fix=fix,
        cost_ns=claim.total,
        # Not a bound: a host that no longer waits for the copies also gets ahead with what follows.
        saving=Saving(0, claim.total, "estimate"),
        evidence=[
            *evidence,
            Evidence("Copying", duration(time), (share_of(exposed_ns, time, "exposed"),)),
            *speed(transfers, chosen),
        ],
        places=places(copies.host, transfers.launch[chosen], transfers.in_call_ns[chosen], by_operator=True),
        ranges=longest(claim, copies.device.id),
        claims={copies.device.id: claim},
    )


RULE = Rule("GD303", "copy_patterns", "Avoidable copies", check, needs_gpu=True, error_share=0.20)
