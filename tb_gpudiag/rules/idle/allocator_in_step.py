"""GD103: the driver is asked for memory, or given it back, inside the steps."""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpudiag.facts.core.causes import Cause
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
from tb_gpudiag.rules.shared.lost_time import host_time, lost_time, places, removing
from tb_gpudiag.trace.vocabulary.api_calls import ALLOCATOR_CALL
from tb_gpudiag.wording.format import count, share, time_ns

# PyTorch's caching allocator keeps what it got, so a steady step asks the driver for nothing. 1 % leaves room
# for one late growth of the cache in a recording.
LEAST_SHARE = 0.01

MOST_CALLS = 4
"""Kinds of call that the evidence lists."""

_CODE = """# Before torch is imported (or in the shell):
#   PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
# and in the training loop, take out:
torch.cuda.empty_cache()      # hands the cache back: the next step pays for it again
x.pin_memory()                # once per step; use DataLoader(pin_memory=True)"""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Idle time inside cudaMalloc, cudaFree, host allocations and their like."""
    lost = lost_time(facts.window, facts.device, facts.host_pieces, claimed)
    if facts.device is None:
        return NO_GPU
    chosen = lost.of(Cause.ALLOCATOR)
    cost_ns = lost.total_ns(chosen)
    if lost.share(cost_ns) < LEAST_SHARE:
        return Clear(f"memory calls to the driver cost {share(cost_ns, lost.window_ns)} of the step window")
    return Finding(
        title=f"Memory calls to the driver hold the GPU up for {share(cost_ns, lost.window_ns)} of the time",
        summary="cudaMalloc, cudaFree and host allocations are slow, and some wait until the GPU has "
        "finished all its "
        "work. In a steady step PyTorch's caching allocator needs none of them.",
        fix=Fix(
            "Keep the caching allocator's memory: no empty_cache() in the loop, no changing peak sizes, "
            "pinned buffers "
            "made once.",
            _CODE,
            "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            Evidence(
                "GPU idle inside them", f"{time_ns(cost_ns)}, {share(cost_ns, lost.window_ns)} of the window"
            ),
            *(
                Evidence(name, count(calls, "call"))
                for name, calls in facts.calls.count_by_name(ALLOCATOR_CALL, facts.window)[:MOST_CALLS]
            ),
            *_reserve_evidence(facts, lost.device),
        ],
        places=places(facts.host, lost.event[chosen], lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        removable=removing(host_time(facts.host_pieces, Cause.ALLOCATOR)),
    )


def _reserve_evidence(facts: Facts, device: int) -> Iterator[Evidence]:
    """What the allocator got and gave back, where memory was recorded."""
    for memory in facts.memory:
        reserve = memory.reserve
        if memory.device != device:
            continue
        if reserve.steady_growths or reserve.steady_shrinks:
            grew = f"grew {count(reserve.steady_growths, 'time')}"
            yield Evidence(
                "reserved memory after the first step",
                f"{grew}, was given back {count(reserve.steady_shrinks, 'time')}",
            )
        if reserve.retries:
            yield Evidence("cache emptied to get memory", count(reserve.retries, "time"))


RULE = Rule("GD103", "allocator_in_step", "Memory calls in the step", check, error_share=0.20)
