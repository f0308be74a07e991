"""GD103: calls that allocate or free memory keep the GPU idle during the steps."""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.launching.launch_modes import AllocatorCalls
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.rules.answer import Evidence, Finding, Fix, Severity
from tb_gpudiag.rules.rule import GpuRule, page_fixes, speaks_from
from tb_gpudiag.rules.shared.emptied_cache import emptying_evidence
from tb_gpudiag.rules.shared.lost_time import LostPart, host_time, of_lost_time, removing
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.api_calls import ALLOCATOR_CALL
from tb_gpudiag.wording.format import around
from tb_gpudiag.wording.quantity import number, per_step

FIXES = page_fixes(__name__)

# PyTorch's caching allocator keeps freed memory, so a steady step never calls the driver. 1% allows for one
# late growth of the cache in a recording.
LEAST_SHARE = levels.SLIGHT

# A single call is such a growth. In a short recording it takes more than that, and in one of a single call
# nothing shows that the next one makes it, too.
FEWEST_CALLS = 2

MOST_CALLS = 4
"""Number of call names in the evidence."""

# A cache that grows, or is emptied, calls the driver in bursts: allocations in a row, then frees in a row, so
# that empty_cache() makes two turns. Without a cache, every temporary tensor makes one: 200 per step in a
# ResNet-18's public trace, in which 37% of the calls are a turn.
LEAST_TURNS = 20
LEAST_TURN_SHARE = levels.SIZEABLE

_URL = "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management"


def _finding(part: LostPart) -> Finding:
    facts, lost, chosen, cost_ns = part.facts, part.lost, part.chosen, part.cost_ns
    steps = len(facts.step_times)
    own = facts.memory_of(lost.device)
    retries = own.reserve.retries if own is not None else 0
    why, fix = _reason(facts.launches.allocator_calls, steps, retries=retries)
    by_name = facts.launches.calls.count_by_name(ALLOCATOR_CALL, facts.host_window)
    recurs = sum(calls for _, calls in by_name) >= FEWEST_CALLS
    return Finding(
        title=f"Memory allocation keeps the GPU idle {part.of_window} of the time",
        summary="cudaMalloc, cudaFree and host allocations are slow, and some wait until the GPU has "
        "finished all of its work. In a steady step PyTorch's caching allocator needs none of them."
        + around(" ", why),
        fix=fix,
        evidence=[
            Evidence.of_window("Idle during memory calls", cost_ns, lost.window_ns),
            *(
                Evidence(name, number(calls, "call"), per_step(calls, steps) if calls >= steps else ())
                for name, calls in by_name[:MOST_CALLS]
            ),
            *_empty_cache_evidence(facts.launches.allocator_calls, steps),
            *(_reserve_evidence(own) if own is not None else ()),
        ],
        **lost.where(facts.host, chosen, by_operator=True),
        removable=removing(host_time(facts.main_thread_spans, Cause.ALLOCATOR)),
        severity=Severity.INFO.when(not recurs),
        sure=recurs,
    )


def _reason(calls: AllocatorCalls, steps: int, *, retries: int) -> tuple[str, Fix]:
    """Say why the allocator calls the driver, "" if the trace does not show it, and how to stop it.

    steps: recorded or inferred; 0 if unknown. retries: how often the cache was emptied to make room.
    """
    turns, both = calls.turns, calls.allocations + calls.frees
    off = turns >= LEAST_TURNS * max(1, steps) and turns >= LEAST_TURN_SHARE * both
    reasons = (
        (
            retries,
            "Memory is full: the allocator empties its cache to make room, and waits for the GPU each time.",
            "full",
        ),
        (
            calls.frees_in_empty_cache * 2 >= max(1, calls.frees),
            "torch.cuda.empty_cache() makes most of the calls that free memory.",
            "empty_cache",
        ),
        (
            off,
            "Here, allocations and frees alternate tensor by tensor: the cache is switched off.",
            "caching_off",
        ),
        (
            calls.retries,
            "Memory was probably full: an operator asks the driver for memory, frees cached blocks, and asks "
            "again.",
            "full",
        ),
        (True, "", "keep_cache"),
    )
    why, fix = next((why, fix) for holds, why, fix in reasons if holds)
    return why, FIXES[fix]


def _empty_cache_evidence(calls: AllocatorCalls, steps: int) -> list[Evidence]:
    """How often empty_cache() ran, if the trace has its frame."""
    frees, times = number(calls.frees_in_empty_cache, "free"), calls.empty_cache_calls
    return Evidence.some("torch.cuda.empty_cache()", number(times, "call"), *per_step(times, steps), frees)


def _reserve_evidence(own: DeviceMemory) -> Iterator[Evidence]:
    """How often the device's reserved memory changed."""
    reserve = own.reserve
    if reserve.steady_growths or reserve.steady_shrinks:
        releases = number(reserve.steady_shrinks, "release")
        yield Evidence(
            "Reserved memory after the first step", number(reserve.steady_growths, "growth"), (releases,)
        )
    yield from emptying_evidence(own)


# Idle time inside cudaMalloc, cudaFree, host allocations and similar calls.
_CHECK = speaks_from(
    LEAST_SHARE,
    of_lost_time(lambda lost: lost.of(Cause.ALLOCATOR)),
    lambda part: f"memory allocation keeps the GPU idle {part.of_window} of the step window",
    _finding,
)

RULE = GpuRule(
    "GD103",
    "allocator_in_step",
    "Memory allocation during steps",
    _CHECK,
    error_share=levels.LARGE,
    topic="memory",
)
