"""Running out of memory: how much room there is, and in words, what a failed allocation lacked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.peak import Failure
from tb_gpudiag.rules.rule import Evidence, Place, place_at
from tb_gpudiag.wording.kinds import MEMORY_KINDS
from tb_gpudiag.wording.quantity import number, share_of, size

# Jobs worth profiling run for hours: ten thousand steps of half a second are an hour and a half. Growth is
# judged by the memory that it takes by then.
HORIZON_STEPS = 10_000

# Traces do not say how much memory the host has, and the oldest ones do not say it of the GPU. The smallest
# machines used for training have this much, and growth that fits does no harm.
USUAL_BYTES = 8 * 2**30

# The allocator asks the driver for 20 MiB at least, and for multiples of 2 MiB above 10 MiB.
LEAST_SEGMENT_BYTES = 20 << 20


def whole_bytes(memory: DeviceMemory) -> int:
    """Return the capacity; if it is unknown, the peak, but at least USUAL_BYTES."""
    return memory.capacity_bytes or max(USUAL_BYTES, memory.peak.allocated_bytes)


def is_large(memory: DeviceMemory, bytes_per_step: float) -> bool:
    """Whether growth fills the free memory within the horizon, or USUAL_BYTES if free memory is unknown."""
    left = memory.capacity_bytes - memory.peak.allocated_bytes if memory.capacity_bytes else USUAL_BYTES
    return bytes_per_step * HORIZON_STEPS >= left


def share_of_memory(
    memories: Sequence[DeviceMemory], device: int, held_bytes: float, bytes_per_step: float
) -> float:
    """Share of the device's memory (NONE: the CPU's) that is held or grows by the horizon, 0 to 1."""
    memory = next((memory for memory in memories if memory.device == device), None)
    if memory is None:
        return 0.0
    return min(1.0, (held_bytes + bytes_per_step * HORIZON_STEPS) / whole_bytes(memory))


def out_of_memory_title(memory: DeviceMemory, failure: Failure) -> str:
    """Return a line such as `GPU 0 ran out of memory: an allocation of 2.00 GiB failed`."""
    times = memory.reserve.out_of_memory
    if times == 1:
        return f"{memory.name} ran out of memory: an allocation of {size(failure.requested_bytes)} failed"
    return (
        f"{memory.name} ran out of memory {number(times, 'time')}: "
        f"the last allocation that failed requested {size(failure.requested_bytes)}"
    )


def out_of_memory_sentences(failure: Failure) -> str:
    """Say what was free then, why the allocation did not fit, and what held most of the rest."""
    return " ".join([*_free(failure), *_why(failure), *_held(failure)])


def _free(failure: Failure) -> Iterator[str]:
    driver, unused, largest = failure.driver_free_bytes, failure.unused_bytes, failure.largest_free_bytes
    parts = []
    if driver != NONE:
        parts.append(f"the driver had {size(driver)} free")
    if unused != NONE:
        block = f" (largest free block: {size(largest)})" if largest != NONE else ""
        parts.append(f"the allocator had {size(unused)} reserved but unused{block}")
    if parts:
        text = " and ".join(parts)
        yield f"{text[0].upper()}{text[1:]}."


def _why(failure: Failure) -> Iterator[str]:
    requested = failure.requested_bytes
    driver, unused = max(0, failure.driver_free_bytes), max(0, failure.unused_bytes)
    if failure.unused_bytes == NONE or not requested:
        return
    if failure.largest_free_bytes >= requested:
        yield (
            "A free block was large enough, but the allocation could not use it: each stream, and each pool "
            "of a CUDA graph, has blocks of its own."
        )
    elif driver >= max(requested, LEAST_SEGMENT_BYTES):
        yield (
            "The driver had enough: the process was limited, as torch.cuda.set_per_process_memory_fraction "
            "does, or another process took the memory at that moment."
        )
    elif unused >= requested:
        yield f"That is enough, but it is fragmented: no free block was large enough.{_joined(failure)}"
    elif driver + unused >= requested:
        yield (
            "Together that is enough, but the allocator cannot return partly used segments to the driver, so "
            f"no contiguous block was large enough.{_joined(failure)}"
        )
    elif failure.driver_free_bytes != NONE:
        yield f"Together that is {size(requested - driver - unused)} too little."


def _joined(failure: Failure) -> str:
    if failure.expandable:
        return ""
    return " Expandable segments would join it (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)."


def _held(failure: Failure) -> Iterator[str]:
    held = failure.held
    kind, most = max(held.kinds.items(), key=lambda one: one[1], default=(None, 0))
    if kind is None or not most:
        return
    of_all = share_of(most, held.allocated_bytes)
    yield f"{of_all} of the {size(held.allocated_bytes)} in use was {MEMORY_KINDS[kind.value].noun}."
    largest = next((owner for owner in held.owners if owner.frame is not None), None)
    if largest is not None and largest.frame is not None:
        where = f"{largest.frame.preposition} {largest.frame}"
        yield f"The largest allocation site, {where}, held {size(largest.bytes)}."


def out_of_memory_evidence(failure: Failure) -> Iterator[Evidence]:
    """Yield the figures at the failure that the recording has."""
    yield Evidence("Requested", size(failure.requested_bytes))
    yield Evidence("In use at the failure", size(failure.held.allocated_bytes))
    for label, number_of_bytes in (
        ("Free in the driver", failure.driver_free_bytes),
        ("Reserved but unused", failure.unused_bytes),
        ("Largest free block", failure.largest_free_bytes),
    ):
        if number_of_bytes != NONE:
            yield Evidence(label, size(number_of_bytes))


def requesting_place(failure: Failure) -> Place | None:
    """Return where the allocation failed; None if the recording does not say."""
    if failure.frame is None and not failure.operator:
        return None
    return place_at(failure.frame, operator=failure.operator, bytes=failure.requested_bytes)
