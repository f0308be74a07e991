"""GD303: avoidable copies: tensors copied to the host and back, many tiny copies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, Cause
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, clip, intersect, merged, subtract, union
from tb_gpudiag.facts.core.transfers import in_window, round_trips
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Removal
from tb_gpudiag.facts.waiting.sync_sites import between_launches, operators_around
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Place, Removable, RuleAnswer
from tb_gpudiag.rules.rule import NOTHING_CLAIMED, Claimed, GpuRule, page_fixes, with_claims
from tb_gpudiag.rules.shared.copies import LEAST_BYTES, exposed_time, speed, waits_with
from tb_gpudiag.rules.shared.lost_time import LONGEST_GAP_NS, host_time, longest, lost_time, places
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import count, share
from tb_gpudiag.wording.quantity import duration, number, per_step, share_of, size

FIXES = page_fixes(__name__)

# The effect of a fix of less than this could not be measured (see host_sync.py).
LEAST_SHARE = levels.MEASURABLE

# One or two may be a checkpoint or chance. A job that computes on the host does it in every step.
LEAST_ROUND_TRIPS = 3

# A few scalars per step do no harm, a loop over fields or items does.
LEAST_TINY = 10

_URL = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find time in which the GPU does not compute from a copy to the host until the tensor is back, and time
    lost to tiny copies to the GPU."""
    there = in_window(facts.transfers, facts.gpu.id, facts.window)
    trips = _round_trips(facts, there, claimed)
    if trips is not None:
        claimed = with_claims(claimed, trips.claims)
    found = filter(None, (trips, _tiny_copies(facts, there, claimed)))
    return list(found) or Clear(
        "no tensor is copied to the host and back, and tiny copies cost next to nothing"
    )


def _round_trips(facts: Facts, there: Bool, claimed: Claimed) -> Finding | None:
    """there: mask of the device's copies that begin in the window, shape (t,) as in Transfers."""
    transfers, window, device = facts.transfers, facts.window, facts.gpu
    if int((there & transfers.to_host & (transfers.bytes >= LEAST_BYTES)).sum()) < LEAST_ROUND_TRIPS:
        return None
    borders = np.r_[facts.steps.start_ns, facts.batches.start_ns]
    out, back = round_trips(transfers, there, borders, LEAST_BYTES)
    if len(out) < LEAST_ROUND_TRIPS:
        return None
    lost = lost_time(facts, claimed)
    spans = clip(union(transfers.start_ns[out], transfers.end_ns[back]), window.start_ns, window.end_ns)
    copying = subtract(device.busy.copying, claimed.get(device.id, EMPTY))
    claim = intersect(spans, merged(union(lost.start_ns, lost.end_ns), copying))
    if lost.share(claim.total) < LEAST_SHARE:
        return None
    copied = int(transfers.bytes[out].sum())
    return Finding(
        title=f"Round trips to the host cost {share(claim.total, lost.window_ns)} of the time",
        summary=f"{count(len(out), 'time')}, a tensor is copied to the host, and then as many bytes are "
        "copied back to the GPU. Meanwhile the GPU computes nothing.",
        fix=FIXES["stay"],
        cost_ns=claim.total,
        removable=_round_trips_removed(facts, spans, np.r_[out, back]),
        evidence=[
            Evidence.of_window("Time without computing", claim.total, lost.window_ns),
            Evidence("Round trips", number(len(out), "round trip"), (size(copied, "each way"),)),
            *_copying(facts, np.r_[out, back]),
        ],
        places=_places(facts, np.r_[out, back]),
        ranges=longest(claim, device.id),
        claims={device.id: claim},
    )


def _tiny_copies(facts: Facts, there: Bool, claimed: Claimed) -> Finding | None:
    """there: as for round trips."""
    transfers, device = facts.transfers, facts.gpu
    small = (transfers.bytes != NONE) & (transfers.bytes < LEAST_BYTES)
    tiny = np.flatnonzero(there & transfers.to_device & small & (transfers.launch != NONE))
    if len(tiny) < LEAST_TINY:
        return None
    lost = lost_time(facts, claimed)
    # Idle time after a synchronization belongs to host_sync, whatever ends the gap.
    late = lost.issuing & (lost.drained_ns == 0) & np.isin(lost.launch, transfers.launch[tiny])
    claim = merged(lost.stretches(late), exposed_time(facts, tiny, claimed))
    if lost.share(claim.total) < LEAST_SHARE:
        return None
    median = size(float(np.median(transfers.bytes[tiny])), "median size")
    each = (*per_step(len(tiny), len(facts.steps)), median)
    return Finding(
        title=f"{count(len(tiny), 'tiny copy', 'tiny copies')} to the GPU cost "
        f"{share(claim.total, lost.window_ns)} of the time",
        summary="Each copies so little that the call takes longer than the copy, and the GPU waits for the "
        "next one.",
        fix=FIXES["pack"],
        cost_ns=claim.total,
        removable=_tiny_copies_removed(facts, tiny),
        evidence=[
            Evidence.of_window("Time without computing", claim.total, lost.window_ns),
            Evidence("Idle before tiny copies", duration(lost.total_ns(late))),
            Evidence("Tiny copies", number(len(tiny), "copy", "copies"), each),
            *_copying(facts, tiny),
        ],
        places=_places(facts, tiny),
        ranges=longest(claim, device.id),
        claims={device.id: claim},
    )


def _round_trips_removed(facts: Facts, spans: Intervals, copies: Int64) -> Removable:
    """At least the copies and the waits for them vanish, at most also what the host does in between.

    spans: from each copy to the host until the tensor is back. copies: indices of Transfers.
    """
    gone = _without(facts, copies)
    meanwhile = host_time(facts.main_thread_spans, *BETWEEN_CALLS, Cause.DISPATCH, Cause.LAUNCH)
    return Removable(replace(gone, host=intersect(spans, meanwhile)), least=gone)


def _tiny_copies_removed(facts: Facts, copies: Int64) -> Removable:
    """The operators that make the copies vanish with the copies, and with the loop around them. copies:
    indices of Transfers."""
    calls = facts.transfers.launch[copies]
    around = operators_around(facts.host, calls, LONGEST_GAP_NS)
    loops = between_launches(facts.work, calls, LONGEST_GAP_NS)
    return Removable(replace(_without(facts, copies), host=merged(around, loops)))


def _without(facts: Facts, copies: Int64) -> Removal:
    """Remove these copies, and the waits for them. copies: indices of Transfers."""
    calls = facts.transfers.launch[copies]
    calls, blocking = calls[calls != NONE], facts.host_time.blocking
    waits = blocking[waits_with(facts.host, blocking, calls)]
    return Removal(unblocked=tuple(waits.tolist()), dropped=tuple(calls.tolist()))


def _copying(facts: Facts, chosen: Int64) -> list[Evidence]:
    """How long these copies took, and how fast they were. chosen: indices of Transfers."""
    transfers = facts.transfers
    time = int((transfers.end_ns - transfers.start_ns)[chosen].sum())
    exposed_ns = exposed_time(facts, chosen, NOTHING_CLAIMED).total
    return [
        Evidence("Copying", duration(time), (share_of(exposed_ns, time, "exposed"),)),
        *speed(transfers, chosen),
    ]


def _places(facts: Facts, chosen: Int64) -> list[Place]:
    transfers = facts.transfers
    return places(facts.host, transfers.launch[chosen], transfers.in_call_ns[chosen], by_operator=True)


RULE = GpuRule("GD303", "copy_patterns", "Avoidable copies", check, error_share=levels.LARGE)
