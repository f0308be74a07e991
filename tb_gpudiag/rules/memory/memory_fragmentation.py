"""GD403: the caching allocator reserves far more memory than tensors use."""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.launching.launch_modes import DriverCalls
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, Fix, RuleAnswer, Severity, place_at
from tb_gpudiag.rules.rule import GPU_MEMORY, MEMORY_FILES, TRACES, Claimed, Need, Rule
from tb_gpudiag.rules.shared.shortage import FIXES, Shortage, remedies
from tb_gpudiag.vocabulary.api_calls import GRAPH_LAUNCH
from tb_gpudiag.wording.quantity import number, ratio, share_of, size

# The usual rule of thumb. In public traces reserved memory is 1.01 to 1.33 times the allocated memory at the
# peak; in one it is 1.93 times, with two thirds of the GPU free.
RESERVED_RATIO = 1.5

# Less than a tenth of the device hardly allows a larger batch.
UNUSED_SHARE = 0.1

# Expandable segments are worth it if the same allocations need a tenth less with them, replayed.
LESS_SHARE = 0.1

# If the capacity is unknown: 1 GiB is enough for a larger batch to matter.
UNUSED_BYTES = 2**30

# While the device has room for more, unused memory does no harm: a hint. From half of the device on, the next
# larger batch lacks the unused part: a warning.
RESERVED_SHARE = 0.5

# A snapshot shows the free blocks. If one of them is at least half of the unused memory, most requests fit.
# The memory was needed earlier and is cached, not fragmented: also a hint.
LARGEST_BLOCK_SHARE = 0.5

MOST_PLACES = 3
"""The largest allocations at the peak: the free blocks are between them."""


def _known(facts: Facts) -> list[DeviceMemory]:
    return [memory for memory in facts.gpu_memory if memory.reserve.known]


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Compare reserved with allocated memory at the allocation peak."""
    known = _known(facts)
    return [
        _finding(memory, facts, failed=_has_failed(memory, facts))
        for memory in known
        if _is_notable(memory, facts)
    ] or Clear(
        "; ".join(f"{m.name}: reserved memory is {ratio(_ratio(m))} the allocated at the peak" for m in known)
    )


def _ratio(memory: DeviceMemory) -> float:
    return memory.peak.reserved_at_peak_bytes / max(1, memory.peak.allocated_bytes)


def _is_notable(memory: DeviceMemory, facts: Facts) -> bool:
    unused = memory.reserve.unused_at_peak_bytes
    far_more = _ratio(memory) >= RESERVED_RATIO and unused >= _least_bytes(memory)
    return far_more or _has_failed(memory, facts) or _costs(memory)


def _costs(memory: DeviceMemory) -> bool:
    """Whether the same allocations need much less memory with expandable segments, replayed."""
    if not _is_much(memory, memory.peak_reserved_bytes, memory.peak_allocated_bytes):
        return False  # nothing can save as much: a replay takes time
    fit = memory.fit
    return fit is not None and _is_much(memory, fit.needs_bytes, fit.expandable_needs_bytes)


def _is_much(memory: DeviceMemory, needs_bytes: int, less_bytes: int) -> bool:
    return needs_bytes - less_bytes >= max(_least_bytes(memory), LESS_SHARE * needs_bytes)


def _least_bytes(memory: DeviceMemory) -> float:
    return UNUSED_SHARE * memory.capacity_bytes or UNUSED_BYTES


def _has_failed(memory: DeviceMemory, facts: Facts) -> bool:
    """Whether an allocation failed although enough memory was unused, and to arrange it helps."""
    if memory.reserve.unused_at_failure_bytes < _least_bytes(memory):
        return False
    return remedies(Shortage(memory, facts)).arranges


def _is_harmful(memory: DeviceMemory) -> bool:
    """Whether memory runs out earlier because of it. Without a capacity there may be no room left."""
    if memory.fit is not None:
        return _costs(memory) and memory.fit.needs_bytes >= RESERVED_SHARE * memory.capacity_bytes
    segments, unused = memory.reserve.segments, memory.reserve.unused_at_peak_bytes
    if segments is not None and segments.largest_free_bytes >= LARGEST_BLOCK_SHARE * unused:
        return False
    return memory.peak.reserved_at_peak_bytes >= RESERVED_SHARE * memory.capacity_bytes


def _finding(memory: DeviceMemory, facts: Facts, *, failed: bool) -> Finding:
    cost, fix = memory.reserve.unused_at_peak_bytes, _fix(memory, facts.launches.calls)
    reserved = f"At the peak the allocator holds {ratio(_ratio(memory))} what tensors use."
    title = f"{memory.name}: {size(cost)} are reserved but unused at the peak"
    if failed:
        cost = memory.reserve.unused_at_failure_bytes
        title = f"{memory.name}: an allocation failed while {size(cost)} were reserved but unused"
        summary = (
            f"The allocation asked for {size(memory.reserve.failed_bytes)}. Enough memory was reserved, but "
            "fragmented between tensors or held in other pools, so that no free block was large enough."
        )
    elif _is_harmful(memory):
        summary = (
            f"{reserved} Its free blocks are fragmented and do not fit new requests, so it gets more from "
            f"the driver and runs out of memory earlier than necessary.{_needs(memory)}"
        )
    else:
        fix = FIXES["empty"]
        summary = (
            f"{reserved} It caches freed memory, so an earlier, higher peak may explain this. It matters if "
            f"other jobs share the GPU or the batch is to grow.{_needs(memory)}"
        )
    return Finding(
        title=title,
        summary=summary,
        fix=fix,
        cost_bytes=cost,
        memory_device=memory.device,
        evidence=list(_evidence(memory, failed=failed)),
        places=[
            place_at(o.frame, operator=o.operator, bytes=o.bytes)
            for o in memory.peak.owners[:MOST_PLACES]
            if o.frame is not None
        ],
        severity=Severity.INFO if fix is FIXES["empty"] else Severity.WARNING,
    )


def _evidence(memory: DeviceMemory, *, failed: bool) -> Iterator[Evidence]:
    peak, reserve, capacity = memory.peak, memory.reserve, memory.capacity_bytes
    unused = reserve.unused_at_peak_bytes
    if failed:
        yield Evidence("Unused at the failure", size(reserve.unused_at_failure_bytes))
        yield Evidence("Requested at the failure", size(reserve.failed_bytes))
    yield from _needs_evidence(memory)
    of_device = (share_of(unused, capacity, f"of {size(capacity)}"),) if capacity else ()
    yield Evidence("Unused at the peak", size(unused), of_device)
    times = ratio(_ratio(memory), "the allocated memory")
    yield Evidence("Reserved at the peak", size(peak.reserved_at_peak_bytes), (times,))
    yield Evidence("Allocated at the peak", size(peak.allocated_bytes))
    if reserve.steady_growths or reserve.steady_shrinks:
        grown, shrunk = number(reserve.steady_growths, "increase"), number(reserve.steady_shrinks, "decrease")
        yield Evidence("Reserved after the first step", grown, (shrunk,))
    if (segments := reserve.segments) is not None:
        expandable = number(segments.expandable, suffix="expandable")
        yield Evidence("Segments", number(segments.segments), (expandable,))
        yield Evidence("Free in partly used segments", size(segments.free_in_used_segments_bytes))
        yield Evidence("Largest free block", size(segments.largest_free_bytes))


def _needs(memory: DeviceMemory) -> str:
    """Say in how much memory the allocations fit, after a space; "" where they cannot be replayed."""
    fit = memory.fit
    if fit is None:
        return ""
    least = "" if fit.whole else "at least "
    return (
        f" Replayed with less memory, the same allocations fit in {size(fit.needs_bytes)}, and with "
        f"expandable segments in {least}{size(fit.expandable_needs_bytes)}."
    )


def _needs_evidence(memory: DeviceMemory) -> Iterator[Evidence]:
    fit = memory.fit
    if fit is None:
        return
    error = f"replayed unchanged, reserved memory is off by {size(fit.error_bytes)} at most"
    alike = f"of {fit.allocations:,} allocations are where they were"
    exact = number(fit.allocations - fit.misplaced, suffix=alike)
    yield Evidence("Needed, replayed", size(fit.needs_bytes), (error, exact))
    least = () if fit.whole else ("at least: what was there before is taken to have no gaps",)
    yield Evidence("Needed with expandable segments", size(fit.expandable_needs_bytes), least)


def _fix(memory: DeviceMemory, calls: DriverCalls) -> Fix:
    segments = memory.reserve.segments
    fits = {
        "pad": segments is not None and segments.expandable > 0,
        "pool": bool(calls.count_by_name(GRAPH_LAUNCH)),
        "rocm": memory.is_rocm,
    }
    return FIXES[next((name for name, holds in fits.items() if holds), "expandable")]


_RESERVED = CannotTell(
    "the file does not say how much memory the allocator had reserved",
    "Record with profile_memory=True and PyTorch 1.13 or newer, or record a memory snapshot.",
)

RULE = Rule(
    "GD403",
    "memory_fragmentation",
    "Reserved but unused memory",
    check,
    about=TRACES | MEMORY_FILES,
    needs=(GPU_MEMORY, Need(_known, lambda _: _RESERVED)),
)
