"""GD402: the peak leaves little GPU memory free, or an allocation failed."""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.memory_kinds import MemoryKind
from tb_gpudiag.facts.memory.ways import WayKind
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, Fix, RuleAnswer, Severity, place_at
from tb_gpudiag.rules.rule import GPU_MEMORY, MEMORY_FILES, TRACES, Claimed, Rule
from tb_gpudiag.rules.shared.emptied_cache import emptying_evidence, emptying_sentence, emptying_takes
from tb_gpudiag.rules.shared.lost_time import MOST_PLACES
from tb_gpudiag.rules.shared.out_of_memory import (
    out_of_memory_evidence,
    out_of_memory_sentences,
    out_of_memory_title,
    requesting_places,
)
from tb_gpudiag.rules.shared.shortage import FIXES, Shortage, remedies
from tb_gpudiag.wording.quantity import Quantity, number, share_of, size
from tb_gpudiag.wording.vocabulary import MEMORY_KINDS, PHASES

# The CUDA context, libraries and fragmentation take some hundred MiB in addition to tensors, and one longer
# sequence can take the rest. The fullest public trace leaves 68% free.
ROOM_SHARE = 0.1

# An allocator that frees its cache and asks again was refused memory. If it holds less than half of the
# device, something else holds the rest, and the job's own allocations are not the problem.
REFUSED_SHARE = 0.5

# Each retry frees the whole cache and waits for the GPU. A few happen while sizes settle.
MANY_RETRIES = 10

KINDS_SHOWN = 4

URL = "https://docs.pytorch.org/docs/stable/checkpoint.html"


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Compare the peak with the capacity, and check whether memory ran out."""
    fills = facts.job.server is not None
    if found := [_finding(memory, facts) for memory in facts.gpu_memory if _is_short(memory, fills=fills)]:
        return found
    known = [memory for memory in facts.gpu_memory if memory.knows_room]
    if not known:
        return CannotTell(
            "the file does not say how much memory the GPU has, or how much was allocated before recording",
            "Record with profile_memory=True and PyTorch 1.13 or newer.",
        )
    return Clear(
        "; ".join(
            f"{m.name}: the peak leaves {_free_share(m)} of {size(m.capacity_bytes)} free" for m in known
        )
    )


def _room(memory: DeviceMemory) -> int:
    return max(0, memory.capacity_bytes - memory.peak.allocated_bytes)


def _free_share(memory: DeviceMemory) -> Quantity:
    return share_of(_room(memory), memory.capacity_bytes)


def _is_short(memory: DeviceMemory, *, fills: bool) -> bool:
    """fills: the job fills the GPU's memory on purpose, as an inference server does with its cache."""
    reserve, capacity = memory.reserve, memory.capacity_bytes
    if reserve.out_of_memory:
        return True
    if reserve.retries and memory.peak_reserved_bytes >= REFUSED_SHARE * capacity:
        return True
    return _has_little_room(memory) and not fills


def _has_little_room(memory: DeviceMemory) -> bool:
    return memory.knows_room and _room(memory) < ROOM_SHARE * memory.capacity_bytes


def _finding(memory: DeviceMemory, facts: Facts) -> Finding:
    failure = memory.failure
    peak = failure.held if failure is not None else memory.peak
    kinds = sorted(peak.kinds.items(), key=lambda one: -one[1])
    window_ns = facts.window.duration_ns
    found = remedies(Shortage(memory, facts))
    by_hand = memory.reserve.emptied > memory.reserve.retries and emptying_takes(memory, window_ns)
    fixes = [*([FIXES["keep_cache"]] if by_hand else ()), *found.fixes]
    owners = [owner for owner in peak.owners if owner.operator or owner.frame]
    places = [place_at(owner.frame, operator=owner.operator, bytes=owner.bytes) for owner in owners]
    frees_cache = emptying_sentence(memory, window_ns) or _retries_sentence(memory)
    return Finding(
        title=_title(memory, window_ns),
        summary=" ".join(filter(None, [_situation(memory, kinds), frees_cache, _consequence(memory)])),
        fix=Fix(" ".join(fix.text for fix in fixes), "\n\n".join(fix.code for fix in fixes), URL),
        cost_bytes=_varying_bytes(memory) if found.saves_bytes is None else found.saves_bytes,
        memory_device=memory.device,
        leads=facts.device is None,  # nothing that was recorded is worth more
        evidence=list(_evidence(memory, kinds)),
        places=[*requesting_places(memory), *places[:MOST_PLACES]],
        severity=Severity.ERROR if memory.ran_out else Severity.WARNING,
    )


def _situation(memory: DeviceMemory, kinds: list[tuple[MemoryKind, int]]) -> str:
    if memory.failure is not None:
        return out_of_memory_sentences(memory, memory.failure)
    peak, (main, held) = memory.peak, kinds[0]
    phase = f" in the {PHASES[peak.phase.label].noun}" if peak.phase.label else ""
    of_peak = share_of(held, peak.allocated_bytes)
    return f"Memory peaks{phase}. {of_peak} of it is {MEMORY_KINDS[main.value].noun}."


def _retries_sentence(memory: DeviceMemory) -> str:
    """Say how often the cache was freed to make room, where calls have no times, as in a snapshot."""
    if memory.reserve.retries < MANY_RETRIES:
        return ""
    times = number(memory.reserve.retries, "time")
    return f"To make room, the allocator freed its cache {times}, and each time it waits for the GPU."


def _varying_bytes(memory: DeviceMemory) -> int:
    return sum(owner.bytes for owner in memory.peak.owners if owner.kind not in _FIXED)


def _consequence(memory: DeviceMemory) -> str:
    if memory.ran_out:
        return "A failed allocation ends the job."
    if memory.reserve.out_of_memory:
        return (
            "The job handled the failed allocation and went on, as cuDNN's algorithm search does, or a retry "
            "with a smaller batch. Unhandled, it ends the job."
        )
    return (
        "A longer sequence, a larger batch or more fragmentation ends the job. Before that, the allocator "
        "frees its cache and waits for the GPU each time."
    )


_FIXED = {MemoryKind.BEFORE, MemoryKind.PARAMETER, MemoryKind.OPTIMIZER_STATE}


def _title(memory: DeviceMemory, window_ns: int) -> str:
    if memory.failure is not None:
        return out_of_memory_title(memory, memory.failure)
    if not _has_little_room(memory):
        return f"{memory.name} had to free its cache {number(memory.reserve.retries, 'time')} to get memory"
    title = f"The peak leaves {_free_share(memory)} of {memory.name}'s memory free: {size(_room(memory))}"
    takes = emptying_takes(memory, window_ns)
    return f"{title}. Emptying the cache takes {takes} of the time" if takes else title


def _evidence(memory: DeviceMemory, kinds: list[tuple[MemoryKind, int]]) -> Iterator[Evidence]:
    peak, reserve, capacity = memory.peak, memory.reserve, memory.capacity_bytes
    yield Evidence("Peak", size(peak.allocated_bytes, f"of {size(capacity)}" if capacity else ""))
    if memory.knows_room:
        room = _room(memory)
        yield Evidence("Free at the peak", size(room), (share_of(room, capacity, "of the capacity"),))
    whole, of_it = peak.allocated_bytes, "of the peak"
    if memory.failure is not None:
        yield from out_of_memory_evidence(memory.failure)
        yield from _ways_evidence(memory)
        whole, of_it = memory.failure.held.allocated_bytes, "of what was in use"
    for kind, held in kinds[:KINDS_SHOWN]:
        label = MEMORY_KINDS[kind.value].word
        yield Evidence(label, size(held), (share_of(held, whole, of_it),))
    if reserve.known:
        yield Evidence("Reserved at the peak", size(peak.reserved_at_peak_bytes))
    yield from emptying_evidence(memory)
    yield from Evidence.some("Failed allocations", number(reserve.out_of_memory))


_WAYS = {
    WayKind.EXPANDABLE: "Expandable segments, replayed",
    WayKind.HALF_BATCH: "Half of the batch, replayed",
    WayKind.CHECKPOINT: "Checkpointing, replayed",
}


def _ways_evidence(memory: DeviceMemory) -> Iterator[Evidence]:
    """Yield for each way whether the request that failed would fit, and the most that is allocated then."""
    for way in memory.ways:
        outcome = "it fits" if way.fits else "it may fit" if way.may_fit else "it does not fit"
        low, high = str(size(way.low_bytes)), str(size(way.high_bytes))
        most = f"{low} allocated at most" if low == high else f"{low} to {high} allocated at most"
        frame = way.blocks.frame if way.blocks is not None else None
        blocks = (f"of the blocks called {frame.where}",) if frame is not None else ()
        yield Evidence(_WAYS[way.kind], outcome, (most, *blocks))


RULE = Rule(
    "GD402", "memory_peak", "GPU memory nearly full", check, about=TRACES | MEMORY_FILES, needs=(GPU_MEMORY,)
)
