"""Running out of memory: how much room there is, and in words, what a failed allocation lacked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.peak import Failure
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.memory.request import Request
from tb_gpudiag.rules.answer import Evidence, Place, place_at
from tb_gpudiag.vocabulary.frames import after_word
from tb_gpudiag.wording.format import count, in_quotes
from tb_gpudiag.wording.quantity import number, share_of, size
from tb_gpudiag.wording.vocabulary import MEMORY_KINDS

# Jobs worth profiling run for hours: ten thousand steps of half a second are an hour and a half. Growth is
# judged by the memory that it takes by then.
HORIZON_STEPS = 10_000

# Traces do not say how much memory the host has, and the oldest ones do not say it of the GPU. The smallest
# machines used for training have this much, and growth that fits does no harm.
USUAL_BYTES = 8 * 2**30

# The allocator asks the driver for 20 MiB at least, and for multiples of 2 MiB above 10 MiB.
LEAST_SEGMENT_BYTES = 20 << 20

# One request for half of what the process can have, and for several times as much as all of its tensors take,
# is hardly meant: shapes that broadcast, an index that selects everything, attention over a whole document.
GIANT_SHARE = 0.5
GIANT_TIMES = 4

# With no more than a twentieth of its memory unused, a process has too little of it: the next request uses it
# up, however well its parts are joined.
FULL_SHARE = 0.95


def whole_bytes(memory: DeviceMemory) -> int:
    """Return the capacity; if it is unknown, the peak, but at least USUAL_BYTES."""
    return memory.capacity_bytes or max(USUAL_BYTES, memory.peak.allocated_bytes)


def is_large(memory: DeviceMemory, bytes_per_step: float) -> bool:
    """Whether growth fills the free memory within the horizon, or USUAL_BYTES if free memory is unknown."""
    left = memory.capacity_bytes - memory.peak.allocated_bytes if memory.capacity_bytes else USUAL_BYTES
    return bytes_per_step * HORIZON_STEPS >= left


def share_of_memory(memory: DeviceMemory, held_bytes: float, bytes_per_step: float) -> float:
    """Share of the device's memory that is held or grows by the horizon, 0 to 1."""
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


def out_of_memory_sentences(memory: DeviceMemory, failure: Failure) -> str:
    """Say what was free then, why the allocation did not fit, and what held most of the rest."""
    return " ".join(filter(None, [*_free(failure), _why(memory, failure), *_held(failure)]))


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


class FailureCause(Enum):
    """Why an allocation failed. The advice follows from it."""

    GIANT = "giant"  # the request alone is too large
    POOLS = "pools"  # CUDA graphs' private pools hold what is free
    BLOCKS = "blocks"  # a free block would fit, but belongs to another stream or pool
    LIMIT = "limit"  # the driver had enough: a limit, or another process
    FRAGMENTED = "fragmented"  # enough is unused, but in parts
    TOO_LITTLE = "too little"
    UNKNOWN = "unknown"


def cause_of(memory: DeviceMemory, failure: Failure) -> FailureCause:
    """Say why an allocation failed, as far as the recording shows."""
    requested, unused = failure.requested_bytes, max(0, failure.unused_bytes)
    known, driver = failure.unused_bytes != NONE and requested > 0, max(0, failure.driver_free_bytes)
    private = failure.holes.private_free_bytes
    causes = (
        (FailureCause.GIANT, _is_giant(memory, failure)),
        (FailureCause.UNKNOWN, not known),
        (FailureCause.POOLS, unused >= requested and private >= requested),
        (FailureCause.BLOCKS, failure.largest_free_bytes >= requested),
        (FailureCause.LIMIT, driver >= max(requested, LEAST_SEGMENT_BYTES)),
        (FailureCause.FRAGMENTED, driver + unused >= requested and not _is_full(memory, failure)),
        (FailureCause.TOO_LITTLE, failure.driver_free_bytes != NONE),
    )
    return next((cause for cause, applies in causes if applies), FailureCause.UNKNOWN)


def _is_giant(memory: DeviceMemory, failure: Failure) -> bool:
    """Whether the request does not fit an empty GPU, or takes most of it and is far larger than all tensors
    together: with the tensor or two that its formula made before it, than all others."""
    # A backward pass has the sizes of the forward pass, which fitted: several of them may not.
    in_backward = failure.held.phase is Phase.BACKWARD and failure.request.formula is None
    if failure.request.of_layer or in_backward:
        return False
    beside, capacity = failure.request.beside_bytes, memory.capacity_bytes
    requested, held = failure.requested_bytes + beside, failure.held.allocated_bytes - beside
    if capacity and requested > capacity:
        return requested > held
    return requested >= max(GIANT_SHARE * capacity, GIANT_TIMES * held)


def _is_full(memory: DeviceMemory, failure: Failure) -> bool:
    """Whether almost all that the process can have would be allocated with this request."""
    capacity = memory.capacity_bytes
    return capacity > 0 and failure.held.allocated_bytes + failure.requested_bytes > FULL_SHARE * capacity


_WHY: Mapping[FailureCause, str] = {
    FailureCause.GIANT: "{giant} {shapes}",
    FailureCause.POOLS: (
        "Private pools of CUDA graphs held {private} of it, which only their own graphs can use."
    ),
    FailureCause.BLOCKS: (
        "A free block was large enough, but the allocation could not use it: each stream, and each pool of a "
        "CUDA graph, has blocks of its own."
    ),
    FailureCause.LIMIT: (
        "The driver had enough: the process was limited, as torch.cuda.set_per_process_memory_fraction does, "
        "or another process took the memory at that moment."
    ),
    FailureCause.FRAGMENTED: (
        "That is enough, but it is fragmented: no free block was large enough, and the allocator cannot "
        "return partly used segments to the driver.{joined}{holes}"
    ),
    FailureCause.TOO_LITTLE: (
        "That is too little: with it, {used} of what this process could have would be in use: {capacity}. If "
        "the GPU has more, another process or a limit took the rest."
    ),
    FailureCause.UNKNOWN: "",
}


def _why(memory: DeviceMemory, failure: Failure) -> str:
    return _WHY[cause_of(memory, failure)].format(
        giant=_giant(failure),
        shapes=request_sentence(failure),
        private=size(failure.holes.private_free_bytes),
        capacity=size(memory.capacity_bytes),
        joined=_joined(memory, failure),
        holes=_holes(failure),
        used=share_of(failure.held.allocated_bytes + failure.requested_bytes, memory.capacity_bytes),
    )


def _giant(failure: Failure) -> str:
    formula, beside = failure.request.formula, failure.request.beside_bytes
    if formula is not None:
        return (
            f"The backward pass asks for a tensor as large as one made {formula.where}: with "
            f"it, such tensors take {size(beside + failure.requested_bytes)}, and all others "
            f"{size(failure.held.allocated_bytes - beside)}."
        )
    return (
        f"The request itself is the problem: {size(failure.requested_bytes)}{after_word(failure.frame)}, "
        f"while all tensors together took {size(failure.held.allocated_bytes)}."
    )


def _holes(failure: Failure) -> str:
    holes = failure.holes
    if holes.line is None:
        return ""
    keep = "keeps its segment" if holes.line_count == 1 else "keep their segments"
    return (
        f" {size(holes.line_bytes)} of the free memory is next to "
        f"{number(holes.line_count, 'allocation')} {holes.line.where}, which {keep}."
    )


def _joined(memory: DeviceMemory, failure: Failure) -> str:
    """Say whether the request would fit with expandable segments."""
    fit, capacity = memory.fit, memory.capacity_bytes
    if failure.expandable:
        return ""
    if fit is None or not capacity:
        return " Expandable segments would join it (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)."
    least = "" if fit.whole else "at least "
    more = memory.to_come_bytes
    rest = f" The rest of the forward pass would keep about {size(more)} more." if more else ""
    return (
        f" Replayed with expandable segments, all up to this request needs {least}"
        f"{size(fit.expandable_needs_bytes)} of {size(capacity)}.{rest}"
    )


def _held(failure: Failure) -> Iterator[str]:
    held = failure.held
    kind, most = max(held.kinds.items(), key=lambda one: one[1], default=(None, 0))
    if kind is None:
        return
    of_all = share_of(most, held.allocated_bytes)
    yield f"{of_all} of the {size(held.allocated_bytes)} in use was {MEMORY_KINDS[kind.value].noun}."
    sites = [(owner.frame, owner.bytes) for owner in held.owners if owner.frame is not None]
    for frame, most in sites[:1]:
        yield f"The largest allocation site, {frame.where}, held {size(most)}."


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


def requesting_places(memory: DeviceMemory) -> list[Place]:
    """Return where an allocation failed, or the formula whose backward pass asks for too much; nothing if
    none failed, or the recording does not say."""
    failure = memory.failure
    if failure is None:
        return []
    formula = failure.request.formula
    if formula is not None and cause_of(memory, failure) is FailureCause.GIANT:
        return [place_at(formula, bytes=failure.requested_bytes)]
    place = place_at(failure.frame, operator=failure.operator, bytes=failure.requested_bytes)
    return [place] if failure.frame is not None or failure.operator else []


# The usual format of numbers of each size in bytes.
_FORMATS = {8: "float64 or int64", 4: "float32", 2: "float16 or bfloat16", 1: "int8 or bool"}

_LONGEST_NAME = 80

MOST_SHAPES = 4
"""An operator that joins a list of tensors has hundreds of inputs."""

_NO_SHAPES = "The recording has no shapes: torch.profiler records them with record_shapes=True."


def request_sentence(failure: Failure) -> str:
    """Say what shapes the request follows from."""
    request = failure.request
    operator = in_quotes(failure.operator, _LONGEST_NAME) if failure.operator else "The operator"
    if request.shapes:
        given = f"{operator} was given {_shapes(request.shapes)}"
        return f"{given}, which broadcast to {request.result}." if request.result else f"{given}."
    return f"{_NO_SHAPES} {_guess(request)}" if request.rows else _NO_SHAPES


def _guess(request: Request) -> str:
    number = _FORMATS[request.element_bytes]
    matrix = f"a {number} matrix of {request.rows:,} × {request.rows:,}"
    if not request.alike:
        return f"It is as large as {matrix}, which is a guess."
    return (
        f"A guess: it is {matrix}, because it is exactly as large, and "
        f"{count(request.alike, 'allocation')} of {request.rows:,} such numbers were alive. [N, 1] with [N] "
        "broadcasts to [N, N]."
    )


def _shapes(shapes: Sequence[Sequence[int]]) -> str:
    more = len(shapes) - MOST_SHAPES
    shown = [str(list(shape)) for shape in shapes[:MOST_SHAPES]]
    if more > 0:
        shown.append(count(more, "more tensor"))
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
