"""GD304: copies between host and GPU that nothing hides."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.intervals import EMPTY, intersect, subtract
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
from tb_gpudiag.rules.shared.copies import speed
from tb_gpudiag.rules.shared.lost_time import longest, places
from tb_gpudiag.wording.format import count, share, size_bytes, time_ns

# Public traces lose up to 3 % so. A batch that is copied while the GPU computes the one before costs nothing;
# from 5 % on, the second stream that this takes is worth its lines.
LEAST_SHARE = 0.05

_CODE = """# Copy the next batch on a stream of its own, while this one is computed:
copying = torch.cuda.Stream()

def ahead(loader):
    batch = None
    for following in loader:                         # DataLoader(..., pin_memory=True)
        with torch.cuda.stream(copying):
            following = following.to(device, non_blocking=True)
        if batch is not None:
            yield batch
        torch.cuda.current_stream().wait_stream(copying)
        following.record_stream(torch.cuda.current_stream())
        batch = following
    yield batch

# Better than any copy is none: keep on the GPU what is used again, and copy bytes, not floats.
x = images_uint8.to(device, non_blocking=True).float().div_(255)"""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Time in which copies from and to the host ran, nothing computed, and which is no other finding's."""
    device = facts.device
    if device is None:
        return NO_GPU
    window, transfers = facts.window, facts.transfers
    chosen = in_window(transfers, device.id, window) & (transfers.to_device | transfers.to_host)
    exposed = intersect(transfers.ran(chosen, window), device.busy.copying)
    exposed = subtract(exposed, claimed.get(device.id, EMPTY))
    cost_ns = exposed.total
    if cost_ns < LEAST_SHARE * window.duration_ns or not cost_ns:
        return Clear(
            f"copies from and to the host that nothing hides cost {share(cost_ns, window.duration_ns)} of "
            "the step window"
        )
    copies = np.flatnonzero(chosen)
    copying_ns = transfers.ran(chosen, window).total
    in_ns = int((transfers.end_ns - transfers.start_ns)[chosen & transfers.to_device].sum())
    all_ns = int((transfers.end_ns - transfers.start_ns)[chosen].sum())
    return Finding(
        title=f"Copies between host and GPU stand alone for {share(cost_ns, window.duration_ns)} of the time",
        summary="While they run, the GPU computes nothing. On a stream of their own, ahead of time, they "
        "would run beside the computing.",
        fix=Fix(
            "Copy the next batch while this one is computed, or copy less.",
            _CODE,
            "https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            Evidence(
                "copies",
                f"{count(len(copies))}, {size_bytes(float(np.maximum(transfers.bytes[copies], 0).sum()))}",
            ),
            Evidence("not hidden under computing", f"{time_ns(cost_ns)} of {time_ns(copying_ns)}"),
            Evidence("to the GPU", share(in_ns, all_ns)),
            *speed(facts, copies),
        ],
        places=places(
            facts.host,
            transfers.launch[copies],
            (transfers.end_ns - transfers.start_ns)[copies],
            by_operator=True,
        ),
        ranges=longest(exposed, device.id),
        claims={device.id: exposed},
    )


RULE = Rule("GD304", "exposed_copies", "Copies that nothing hides", check, error_share=0.20)
