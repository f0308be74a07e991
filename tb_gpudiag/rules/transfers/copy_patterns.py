"""GD303: copies that need not be: a tensor that goes to the host and comes back, many tiny ones."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, clip, intersect, subtract, union
from tb_gpudiag.facts.core.transfers import in_window, round_trips
from tb_gpudiag.facts.facts import DeviceFacts, Facts
from tb_gpudiag.facts.waiting.loading import batches
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
from tb_gpudiag.rules.shared.copies import LEAST_BYTES, speed
from tb_gpudiag.rules.shared.launch_gaps import in_short_dry_gaps
from tb_gpudiag.rules.shared.lost_time import ISSUING, Lost, longest, lost_time, places
from tb_gpudiag.trace.events import NONE, Bool, Int64
from tb_gpudiag.wording.format import count, share, size_bytes, time_ns

# Less could not be measured after the fix (see host_sync.py).
LEAST_SHARE = 0.02

# Once or twice may be a checkpoint or chance; a job that computes on the host does it in every step.
LEAST_ROUND_TRIPS = 3

# A few scalars a step are no matter; a loop over fields or items is.
LEAST_TINY = 10

_STAY = """# What the host does with the tensor between the two copies can be done on the GPU:
boxes = torchvision.ops.nms(boxes, scores, 0.5)     # instead of: nms(boxes.cpu(), ...).to(device)
order = scores.argsort()                            # instead of: numpy.argsort(scores.cpu().numpy())
# If it has to be done on the host: for the step before, while the GPU computes this one."""

_PACK = """# One copy of everything instead of many of little:
packed = torch.tensor([lengths, offsets, labels]).pin_memory().to(device, non_blocking=True)
lengths, offsets, labels = packed.unbind()
# Constants: make them on the GPU, once.
mask = torch.ones(n, device=device)                 # instead of: torch.ones(n).to(device)"""

_URL = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Time in which the GPU did not compute from such a copy to the host until it was back, and idle time
    before tiny copies to the GPU."""
    device = facts.device
    if device is None:
        return NO_GPU
    lost = lost_time(facts.window, facts.device, facts.host_pieces, claimed)
    there = in_window(facts.transfers, device.id, facts.window)
    trips = _round_trips(facts, device, lost, there, claimed)
    if trips is not None:
        own, before = trips.claims[device.id], claimed.get(device.id, EMPTY)
        both = union(np.r_[before.start, own.start], np.r_[before.end, own.end])
        claimed = {**claimed, device.id: both}
        lost = lost_time(facts.window, facts.device, facts.host_pieces, claimed)
    found = [f for f in (trips, _tiny(facts, device, lost, there, claimed)) if f is not None]
    return found or Clear("no tensor goes to the host and back, and tiny copies cost next to nothing")


def _round_trips(
    facts: Facts, device: DeviceFacts, lost: Lost, there: Bool, claimed: Claimed
) -> Finding | None:
    transfers = facts.transfers
    if int((there & transfers.to_host & (transfers.bytes >= LEAST_BYTES)).sum()) < LEAST_ROUND_TRIPS:
        return None
    borders = np.r_[facts.steps.start_ns, batches(facts.host, facts.window)[0]]
    out, back = round_trips(transfers, there, borders, LEAST_BYTES)
    if len(out) < LEAST_ROUND_TRIPS:
        return None
    spans = union(transfers.start_ns[out], transfers.end_ns[back])
    spans = clip(spans, facts.window.start_ns, facts.window.end_ns)
    idle = union(lost.start_ns, lost.end_ns)
    copying = subtract(device.busy.copying, claimed.get(device.id, EMPTY))
    claim = intersect(spans, union(np.r_[idle.start, copying.start], np.r_[idle.end, copying.end]))
    if lost.share(claim.total) < LEAST_SHARE:
        return None
    size = int(transfers.bytes[out].sum())
    return _finding(
        facts,
        device,
        claim,
        lost.window_ns,
        title=f"Tensors go to the host and back: {share(claim.total, lost.window_ns)} of the time",
        summary=f"{count(len(out), 'time')} a copy to the host is followed by one of exactly the same size "
        "back to the GPU. Meanwhile the GPU computes nothing.",
        fix=Fix("Do on the GPU what is done to the tensor in between.", _STAY, _URL),
        evidence=[
            Evidence("round trips", f"{count(len(out))}, {size_bytes(size)} each way"),
            Evidence("the GPU's time meanwhile", time_ns(claim.total)),
        ],
        copies=np.r_[out, back],
    )


def _tiny(facts: Facts, device: DeviceFacts, lost: Lost, there: Bool, claimed: Claimed) -> Finding | None:
    transfers = facts.transfers
    small = (transfers.bytes != NONE) & (transfers.bytes < LEAST_BYTES)
    tiny = np.flatnonzero(there & transfers.to_device & small & (transfers.launch != NONE))
    if len(tiny) < LEAST_TINY:
        return None
    # What a wait drained is the wait's (host_sync), whatever ends the gap.
    late = (
        in_short_dry_gaps(lost, device)
        & lost.of(*ISSUING)
        & (lost.drained_ns == 0)
        & np.isin(lost.launch, transfers.launch[tiny])
    )
    exposed = _exposed(facts, device, tiny, claimed)
    claim = union(np.r_[lost.start_ns[late], exposed.start], np.r_[lost.end_ns[late], exposed.end])
    if lost.share(claim.total) < LEAST_SHARE:
        return None
    steps = len(facts.steps)
    per_step = f", {count(round(len(tiny) / steps))} a step" if steps else ""
    return _finding(
        facts,
        device,
        claim,
        lost.window_ns,
        title=f"{count(len(tiny), 'tiny copy', 'tiny copies')} to the GPU cost "
        f"{share(claim.total, lost.window_ns)} of the time",
        summary="Each copies so little that the call takes longer than the copy, and the GPU waits for the "
        "next one.",
        fix=Fix("Pack them into one copy, or make the tensors on the GPU.", _PACK, _URL),
        evidence=[
            Evidence(
                "tiny copies",
                f"{count(len(tiny))}{per_step}, {size_bytes(float(np.median(transfers.bytes[tiny])))} in "
                "the median",
            ),
            Evidence("GPU idle before them", time_ns(lost.total_ns(late))),
        ],
        copies=tiny,
    )


def _finding(
    facts: Facts,
    device: DeviceFacts,
    claim: Intervals,
    window_ns: int,
    *,
    title: str,
    summary: str,
    fix: Fix,
    evidence: list[Evidence],
    copies: Int64,
) -> Finding:
    transfers = facts.transfers
    time = int((transfers.end_ns - transfers.start_ns)[copies].sum())
    exposed = _exposed(facts, device, copies, NOTHING_CLAIMED)
    return Finding(
        title=title,
        summary=summary,
        fix=fix,
        cost_ns=claim.total,
        saving=Saving(0, claim.total),
        evidence=[
            *evidence,
            Evidence("copying", f"{time_ns(time)}, {share(exposed.total, time)} not hidden under computing"),
            *speed(facts, copies),
        ],
        places=places(facts.host, transfers.launch[copies], transfers.in_call_ns[copies], by_operator=True),
        ranges=longest(claim, device.id),
        claims={device.id: claim},
    )


def _exposed(facts: Facts, device: DeviceFacts, copies: Int64, claimed: Claimed) -> Intervals:
    """Where these copies ran, nothing computed, and nobody claimed it."""
    ran = facts.transfers.ran(copies, facts.window)
    return subtract(intersect(ran, device.busy.copying), claimed.get(device.id, EMPTY))


RULE = Rule("GD303", "copy_patterns", "Copies that need not be", check, error_share=0.20)
