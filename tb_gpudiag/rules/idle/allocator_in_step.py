"""GD103: calls that allocate or free memory keep the GPU idle during the steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
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
from tb_gpudiag.rules.shared.evidence import window_time
from tb_gpudiag.rules.shared.lost_time import host_time, lost_time, places, removing
from tb_gpudiag.trace.vocabulary.api_calls import ALLOCATOR_CALL
from tb_gpudiag.wording.format import share
from tb_gpudiag.wording.quantity import number

# PyTorch's caching allocator keeps freed memory, so a steady step never calls the driver. 1% allows for one
# late growth of the cache in a recording.
LEAST_SHARE = 0.01

MOST_CALLS = 4
"""Number of call names in the evidence."""

_CODE = """# Before torch is imported (or in the shell):
#   PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
# and remove from the training loop:
torch.cuda.empty_cache()      # frees the cache, and the next step has to fetch it again
x.pin_memory()                # pins in every step; use DataLoader(pin_memory=True)"""


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Find idle time inside cudaMalloc, cudaFree, host allocations and similar calls."""
    if facts.device is None:
        return NO_GPU
    lost = lost_time(facts.window, facts.device, facts.main_thread_spans, claimed)
    chosen = lost.of(Cause.ALLOCATOR)
    cost_ns = lost.total_ns(chosen)
    if lost.share(cost_ns) < LEAST_SHARE:
        return Clear(
            f"memory allocation keeps the GPU idle {share(cost_ns, lost.window_ns)} of the step window"
        )
    return Finding(
        title=f"Memory allocation keeps the GPU idle {share(cost_ns, lost.window_ns)} of the time",
        summary="cudaMalloc, cudaFree and host allocations are slow, and some wait until the GPU has "
        "finished all of its work. In a steady step PyTorch's caching allocator needs none of them.",
        fix=Fix(
            "Let the caching allocator keep its memory: no empty_cache() in the loop, steady peak sizes, and "
            "buffers that are pinned once.",
            _CODE,
            "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",
        ),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            window_time("Idle during memory calls", cost_ns, lost.window_ns),
            *(
                Evidence(name, number(calls, "call"))
                for name, calls in facts.calls.count_by_name(ALLOCATOR_CALL, facts.window)[:MOST_CALLS]
            ),
            *_reserve_evidence(facts.memory, lost.device),
        ],
        places=places(facts.host, lost.event[chosen], lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
        claims=lost.claims(chosen),
        removable=removing(host_time(facts.main_thread_spans, Cause.ALLOCATOR)),
    )


def _reserve_evidence(memory: Sequence[DeviceMemory], device: int) -> Iterator[Evidence]:
    """How often the device's reserved memory changed, if memory was recorded."""
    for own in memory:
        reserve = own.reserve
        if own.device != device:
            continue
        if reserve.steady_growths or reserve.steady_shrinks:
            releases = number(reserve.steady_shrinks, "release")
            yield Evidence(
                "Reserved memory after the first step", number(reserve.steady_growths, "growth"), (releases,)
            )
        if reserve.retries:
            yield Evidence("Cache emptied to make room", number(reserve.retries, "time"))


RULE = Rule("GD103", "allocator_in_step", "Memory allocation during steps", check, error_share=0.20)
