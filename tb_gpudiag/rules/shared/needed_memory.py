"""How much memory a job's allocations need, replayed through a model of the allocator, in words."""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.ways import Way, WayKind
from tb_gpudiag.rules.answer import Evidence
from tb_gpudiag.wording.quantity import number, size

# A pass that failed in the middle needs more than it had: less than a tenth of room is soon used up, and less
# than a twentieth at once.
ROOM_SHARE = 0.1
LEAST_ROOM_SHARE = 0.05


def needs_sentence(memory: DeviceMemory) -> str:
    """Say in how much memory the allocations fit, after a space; "" where they cannot be replayed."""
    fit = memory.fit
    if fit is None:
        return ""
    least = "" if fit.whole else "at least "
    return (
        f" Replayed with less memory, the same allocations fit in {size(fit.needs_bytes)}, and with "
        f"expandable segments in {least}{size(fit.expandable_needs_bytes)}."
    )


def needs_evidence(memory: DeviceMemory) -> Iterator[Evidence]:
    fit = memory.fit
    if fit is None:
        return
    error = f"replayed unchanged, reserved memory is off by {size(fit.error_bytes)} at most"
    alike = f"of {fit.allocations:,} allocations are where they were"
    exact = number(fit.allocations - fit.misplaced, suffix=alike)
    yield Evidence("Needed, replayed", size(fit.needs_bytes), (error, exact))
    least = () if fit.whole else ("at least: what was there before is taken to have no gaps",)
    yield Evidence("Needed with expandable segments", size(fit.expandable_needs_bytes), least)


def would_fit_sentence(memory: DeviceMemory) -> str:
    """Say whether the allocation that failed would fit with expandable segments, after a space; "" where it
    cannot be replayed."""
    fit, capacity = memory.fit, memory.capacity_bytes
    if fit is None or not capacity:
        return ""
    needs = size(fit.expandable_needs_bytes)
    if fit.expandable_needs_bytes > capacity:
        return f" Replayed with expandable segments it needs {needs}, more than {size(capacity)}."
    least = "" if fit.whole else "at least "
    room = f"{least}{needs} of {size(capacity)}"
    more = memory.shortage.to_come_bytes
    rest = f" The rest of the forward pass would keep about {size(more)} more." if more else ""
    return f" Replayed with expandable segments, all up to this request fits in {room}.{rest}"


_WORDS = {
    WayKind.EXPANDABLE: "Expandable segments",
    WayKind.COLLECT: "garbage_collection_threshold:0.8",
    WayKind.MAX_SPLIT: "max_split_size_mb:128",
    WayKind.HALF_BATCH: "Half of the batch",
    WayKind.CHECKPOINT: "Checkpointing",
}
_SMALLER = (WayKind.HALF_BATCH, WayKind.CHECKPOINT)
"""Ways that need less memory in all. The others only arrange it."""


def ways_sentence(memory: DeviceMemory) -> str:
    """Say whether a smaller batch or checkpointing would make the request that failed fit; "" where that
    cannot be replayed."""
    parts = [f"with {_named(way)} {_outcome(way)}" for way in memory.shortage.ways if way.kind in _SMALLER]
    return f"Replayed up to this request: {', and '.join(parts)}." if parts else ""


def ways_evidence(memory: DeviceMemory) -> Iterator[Evidence]:
    """Yield for each way whether the request that failed would fit, and the most that is allocated then."""
    for way in memory.shortage.ways:
        yield Evidence(f"{_WORDS[way.kind]}, replayed", _outcome(way), (_allocated(way),))


def _named(way: Way) -> str:
    word = _WORDS[way.kind].lower()
    if way.blocks is None:
        return word
    frame = way.blocks.frame
    return f"{word} of the blocks called {frame.preposition} {frame}" if frame is not None else word


def _outcome(way: Way) -> str:
    if way.fits:
        return "it fits"
    return "it may fit" if way.may_fit else "it does not fit"


def _allocated(way: Way) -> str:
    low, high = str(size(way.low_bytes)), str(size(way.high_bytes))
    return f"{low} allocated at most" if low == high else f"{low} to {high} allocated at most"


def may_fit_expandable(memory: DeviceMemory, *, room: float = 0.0) -> bool:
    """Whether the request that failed, and what the rest of its forward pass keeps, fit with expandable
    segments and leave this share of the memory, or that cannot be told."""
    fit, capacity = memory.fit, memory.capacity_bytes
    needs = 0 if fit is None else fit.expandable_needs_bytes + memory.shortage.to_come_bytes
    return not capacity or needs <= (1 - room) * capacity
