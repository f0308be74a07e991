"""What emptying the allocator's cache costs, for GD103, GD402 and the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.rules.answer import Evidence
from tb_gpudiag.wording.format import count, share, time_ns
from tb_gpudiag.wording.quantity import duration, number

# Each call waits until the GPU has finished its work. Below this share of the time it hardly matters why.
LEAST_SHARE = 0.05


def emptying_takes(memory: DeviceMemory, window_ns: int) -> str:
    """The share of the step window in calls that return memory, in words; "" if it is small."""
    spent_ns = memory.reserve.returning_ns
    return share(spent_ns, window_ns) if spent_ns >= LEAST_SHARE * max(1, window_ns) else ""


def emptying_sentence(memory: DeviceMemory, window_ns: int) -> str:
    """Say how often the cache was emptied, why, and what that takes; "" if it takes little."""
    takes, reserve = emptying_takes(memory, window_ns), memory.reserve
    if not takes:
        return ""
    times = count(reserve.retries + reserve.emptied, "time")
    why = (
        "outside of any allocation, as torch.cuda.empty_cache() does"
        if reserve.emptied > reserve.retries
        else "to make room for an allocation"
    )
    return (
        f"The allocator's cache was emptied {times}, {why}: the calls took {time_ns(reserve.returning_ns)}, "
        "and each waits for the GPU."
    )


def emptying_sentences(memories: Sequence[DeviceMemory], window_ns: int) -> list[str]:
    return [said for memory in memories if (said := emptying_sentence(memory, window_ns))]


def emptying_evidence(memory: DeviceMemory) -> list[Evidence]:
    """How often the cache was emptied, and how long the calls took."""
    reserve = memory.reserve
    return [
        *Evidence.some("Cache emptied to make room", number(reserve.retries, "time")),
        *Evidence.some("Cache emptied otherwise", number(reserve.emptied, "time")),
        *Evidence.some("In calls that return memory", duration(reserve.returning_ns)),
    ]
