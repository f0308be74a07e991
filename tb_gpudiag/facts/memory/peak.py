"""Peak: what was allocated when most was, and when an allocation failed, with what was free then,
and which lines keep it from the driver."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Bool, Int64, UInt8
from tb_gpudiag.facts.core.intervals import groups
from tb_gpudiag.facts.memory.caching_allocator import SMALL_BYTES, SMALL_SEGMENT
from tb_gpudiag.facts.memory.memory_kinds import KINDS, Allocations, MemoryKind
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.memory.request import Request, find_request
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Segments
from tb_gpudiag.vocabulary.frames import Frame
from tb_gpudiag.vocabulary.marks import module_class
from tb_gpudiag.vocabulary.recorded import MemoryAction, MemoryPurpose, allocated_bytes

MOST_CHANGES = 20_000
"""Most changes of segments after a failure that are undone. A job that handles the failure makes a few."""


@dataclass(frozen=True)
class Owner:
    """Memory at the peak of one operator at one place, in modules of one class."""

    kind: MemoryKind
    operator: str
    module: str  # class of the nearest module, e.g. "Linear"; "" unknown
    frame: Frame | None
    bytes: int
    count: int
    largest_bytes: int


@dataclass(frozen=True)
class Peak:
    """When most was allocated, and its breakdown.

    kinds: adds up to allocated_bytes.
    owners: most bytes first; also adds up to allocated_bytes.
    """

    at_ns: int
    allocated_bytes: int
    reserved_at_peak_bytes: int  # NONE where the trace does not say
    phase: Phase
    owners: list[Owner]
    kinds: dict[MemoryKind, int]


def find_peak(allocations: Allocations, at: int | None = None) -> Peak:
    """Find the peak of a device with at least one memory event. at: position of an event after which to look
    instead of at the peak."""
    curve, memory = allocations.curve, allocations.memory
    position = _highest(allocations) if at is None else at
    total = _total(allocations, position)
    own = allocations.context.phase[curve.event]
    known = memory.purpose is None  # a memory timeline knows neither phases nor reserved memory
    if known:
        kinds, owners = _by_owner(allocations, position, total)
    else:
        kinds, owners = _by_purpose(allocations, position, total)
    at_event = max(position, 0)
    return Peak(
        at_ns=int(curve.time_ns[at_event]),
        allocated_bytes=total,
        reserved_at_peak_bytes=int(curve.reserved[at_event]) if known else NONE,
        phase=Phase(int(own[position])) if known and position != NONE else Phase.UNKNOWN,
        owners=sorted(owners, key=lambda owner: -owner.bytes),
        kinds=kinds,
    )


def at_peak(allocations: Allocations) -> Int64:
    """Return the indices of the allocations that are the peak's, as far as the recording shows them: those
    whose owners find_peak lists."""
    position = _highest(allocations)
    return _alive(allocations, position, _total(allocations, position))


def _highest(allocations: Allocations) -> int:
    """Position after which most was allocated; NONE for the time before the first event."""
    curve = allocations.curve
    position = int(curve.allocated.argmax())
    return NONE if curve.start_bytes > curve.allocated[position] else position


def _total(allocations: Allocations, position: int) -> int:
    return int(allocations.curve.before(np.array([position + 1]))[0])


def _alive(allocations: Allocations, position: int, total: int) -> Int64:
    """Return the indices of what was alive after this position, ascending. If more is alive than allocated,
    frees were not recorded. The oldest allocations are the ones that ended."""
    alive = allocations.alive(position)
    newest = alive[::-1][np.cumsum(allocations.bytes[alive[::-1]]) <= total]
    return np.sort(newest)


def _by_owner(
    allocations: Allocations, position: int, total: int
) -> tuple[dict[MemoryKind, int], list[Owner]]:
    """Return what was alive after this position by kind, and by owner. total: of all bytes."""
    alive = _alive(allocations, position, total)
    kind = allocations.kind[alive]
    kind[allocations.found[alive]] = KINDS.index(MemoryKind.BEFORE)
    held = np.bincount(kind, weights=allocations.bytes[alive], minlength=len(KINDS))
    kinds = {k: int(size) for k, size in zip(KINDS, held, strict=True) if size}
    rest = total - sum(kinds.values())
    owners = _owners(allocations, alive, kind)
    if rest:
        other = MemoryKind.BEFORE if allocations.paired else MemoryKind.UNKNOWN
        kinds[other] = kinds.get(other, 0) + rest
        owners.append(Owner(other, "", "", None, rest, 0, 0))
    return kinds, owners


_OF_PURPOSE = {
    MemoryPurpose.PARAMETER: MemoryKind.PARAMETER,
    MemoryPurpose.OPTIMIZER_STATE: MemoryKind.OPTIMIZER_STATE,
    MemoryPurpose.INPUT: MemoryKind.INPUT,
    MemoryPurpose.TEMPORARY: MemoryKind.TEMPORARY,
    MemoryPurpose.ACTIVATION: MemoryKind.ACTIVATION,
    MemoryPurpose.GRADIENT: MemoryKind.GRADIENT,
    MemoryPurpose.AUTOGRAD_DETAIL: MemoryKind.ACTIVATION,  # saved for backward, next to the user's tensors
    MemoryPurpose.UNKNOWN: MemoryKind.UNKNOWN,
}


def _by_purpose(
    allocations: Allocations, position: int, total: int
) -> tuple[dict[MemoryKind, int], list[Owner]]:
    """The same from a memory timeline, which says what memory is for but not who allocated it."""
    memory, event = allocations.memory, allocations.curve.event[: position + 1]
    assert memory.purpose is not None
    held = np.bincount(memory.purpose[event], weights=memory.bytes[event], minlength=len(MemoryPurpose))
    kinds: dict[MemoryKind, int] = {}
    for number, size in enumerate(held):
        kind = _OF_PURPOSE[MemoryPurpose(number)]
        kinds[kind] = kinds.get(kind, 0) + max(0, int(size))
    rest = total - sum(kinds.values())
    if rest < 0:  # the purposes contradict the total
        kinds, rest = {MemoryKind.UNKNOWN: 0}, total
    kinds[MemoryKind.UNKNOWN] += rest
    kinds = {kind: size for kind, size in kinds.items() if size}
    owners = [Owner(kind, "", "", None, size, 0, 0) for kind, size in kinds.items()]
    return kinds, owners


def _owners(allocations: Allocations, alive: Int64, kind: UInt8) -> list[Owner]:
    """Group the chosen allocations by kind, operator, class of module and place."""
    host = allocations.host
    number, first = groups(
        kind.astype(np.int64),
        host.names(allocations.operator[alive]),
        host.names(allocations.module[alive]),
        allocations.place[alive],
        allocations.stack[alive].astype(np.int64),
    )
    size = allocations.bytes[alive]
    total = np.bincount(number, weights=size, minlength=len(first))
    count = np.bincount(number, minlength=len(first))
    largest = np.zeros(len(first), np.int64)
    np.maximum.at(largest, number, size)
    # Modules of one class are merged, and so are stacks with the same frame of the user's.
    found: dict[tuple[MemoryKind, str, str, Frame | None], list[int]] = {}
    for i, row in enumerate(alive[first]):
        key = (
            KINDS[kind[first[i]]],
            host.name(int(allocations.operator[row])),
            module_class(host.name(int(allocations.module[row]))),
            allocations.frame(row),
        )
        sums = found.setdefault(key, [0, 0, 0])
        sums[0] += int(total[i])
        sums[1] += int(count[i])
        sums[2] = max(sums[2], int(largest[i]))
    return [Owner(*key, *sums) for key, sums in found.items()]


@dataclass(frozen=True)
class Failure:
    """An allocation that failed. Sizes are bytes, NONE where the recording does not say.

    unused_bytes: reserved, but not allocated.
    driver_free_bytes: what the driver had free.
    largest_free_bytes: the largest free block for requests of this size, small or large, known to 1 MiB.
    expandable: all segments are expandable.
    request: what decides its size.
    holes: what was free in partly used segments.
    held: what was allocated then, as Peak.
    """

    requested_bytes: int
    unused_bytes: int
    driver_free_bytes: int
    largest_free_bytes: int
    expandable: bool
    operator: str
    frame: Frame | None
    request: Request
    holes: Holes
    held: Peak


def find_failure(allocations: Allocations, segments: Segments | None) -> Failure | None:
    """Return the last failed allocation of a device; None without one. segments: of all devices."""
    curve, memory, context = allocations.curve, allocations.memory, allocations.context
    if not len(allocations.failures):
        return None
    position = int(allocations.failures[-1])
    event = int(curve.event[position])
    reserved = int(curve.reserved[position])
    requested = max(0, int(memory.bytes[event]))
    largest, expandable, holes = NONE, False, Holes()
    if segments is not None:
        largest, expandable, holes = _of_segments(allocations, segments, position, requested)
    return Failure(
        requested_bytes=requested,
        unused_bytes=NONE if reserved == NONE else max(0, reserved - int(curve.allocated[position])),
        driver_free_bytes=NONE if memory.driver_free is None else int(memory.driver_free[event]),
        largest_free_bytes=largest,
        expandable=expandable,
        operator=allocations.host.name(int(context.operator[event])),
        frame=context.frame(event),
        request=find_request(allocations, position),
        holes=holes,
        held=find_peak(allocations, at=position),
    )


def _of_segments(
    allocations: Allocations, segments: Segments, position: int, requested: int
) -> tuple[int, bool, Holes]:
    """Return the largest free block for a request, whether all segments are expandable, and the holes."""
    own = segments.device == allocations.memory.device[allocations.curve.event[position]]
    expandable = bool(own.any()) and bool(segments.expandable[own].all())
    if not allocations.paired:
        return NONE, expandable, Holes()
    largest = _largest_free(allocations, segments, own & _for_size(segments, requested), position)
    return largest, expandable, find_holes(allocations, segments, own, position)


def _for_size(segments: Segments, requested: int) -> Bool:
    """Mask of the segments that a request of this size can be in: small ones have segments of their own.
    Expandable segments do not show which they are for."""
    small = segments.bytes == SMALL_SEGMENT
    return segments.expandable | (small if requested <= SMALL_BYTES else ~small)


def _largest_free(allocations: Allocations, segments: Segments, own: Bool, position: int) -> int:
    """Return the largest part of a segment that no allocation used at this position; NONE if unknown.

    The segments at that time are the snapshot's, with the changes after the position undone.
    """
    curve, memory = allocations.curve, allocations.memory
    action = memory.action[curve.event]
    changes = (
        position
        + 1
        + np.flatnonzero(np.isin(action[position + 1 :], (MemoryAction.GROW, MemoryAction.SHRINK)))
    )
    if len(changes) > MOST_CHANGES:
        return NONE
    changed = curve.event[changes]
    live = allocations.event[allocations.alive(position)]
    begins, ends = _ranges(segments.address[own], segments.bytes[own])
    change_begins, change_ends = _ranges(memory.address[changed], np.abs(memory.bytes[changed]))
    live_begins, live_ends = _ranges(memory.address[live], allocated_bytes(memory.bytes[live]))
    bounds = np.unique(np.r_[begins, ends, change_begins, change_ends, live_begins, live_ends])
    if len(bounds) < 2:
        return 0
    # Each part between two bounds is mapped or not, and used or not.
    mapped = _covered(bounds, begins, ends)
    for i in range(len(changes) - 1, -1, -1):
        first, last = np.searchsorted(bounds, [change_begins[i], change_ends[i]])
        mapped[first:last] = action[changes[i]] == MemoryAction.SHRINK
    free = mapped & ~_covered(bounds, live_begins, live_ends)
    # A block does not go beyond its segment.
    ends_block = begins if segments.expandable[own].all() else np.r_[begins, change_begins]
    starts = np.r_[True, ~free[:-1] | np.isin(bounds[1:-1], ends_block)] & free
    run = np.cumsum(starts) - 1
    size = np.diff(bounds).astype(np.float64)
    return int(np.bincount(run[free], weights=size[free]).max()) if free.any() else 0


def _ranges(
    address: npt.NDArray[np.uint64], size: Int64
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    return address, address + size.astype(np.uint64)


def _covered(
    bounds: npt.NDArray[np.uint64], begins: npt.NDArray[np.uint64], ends: npt.NDArray[np.uint64]
) -> Bool:
    """Mask of the parts between neighboring bounds that at least one range covers."""
    count = np.zeros(len(bounds), np.int64)
    np.add.at(count, np.searchsorted(bounds, begins), 1)
    np.add.at(count, np.searchsorted(bounds, ends), -1)
    return np.cumsum(count)[:-1] > 0


@dataclass(frozen=True)
class Holes:
    """private_free_bytes: free in segments of private pools, as CUDA graphs have them.
    line: whose allocations are next to most of what is free in partly used segments; None if unknown.
    line_bytes: how much is free next to them. line_count: how many they are.
    """

    private_free_bytes: int = 0
    line: Frame | None = None
    line_bytes: int = 0
    line_count: int = 0


def find_holes(allocations: Allocations, segments: Segments, own: Bool, position: int) -> Holes:
    """Find the holes of a device after the event at this position. own: mask of its segments."""
    begins, size, private = _segments_then(allocations, segments, own, position)
    live = allocations.alive(position)
    address = allocations.memory.address[allocations.event[live]]
    at = np.searchsorted(begins, address, side="right") - 1
    inside = at >= 0
    inside[inside] &= (address[inside] - begins[at[inside]]).astype(np.int64) < size[at[inside]]
    live, at = live[inside], at[inside]
    used = np.bincount(at, weights=allocations.bytes[live], minlength=len(begins))
    count = np.bincount(at, minlength=len(begins))
    free = np.maximum(size - used, 0)
    # Blocks of one segment share what is free in it.
    share = free[at] / np.maximum(count[at], 1)
    share[private[at]] = 0
    return Holes(int(free[private].sum()), *_line(allocations, live, share))


def _segments_then(
    allocations: Allocations, segments: Segments, own: Bool, position: int
) -> tuple[npt.NDArray[np.uint64], Int64, Bool]:
    """Return address, size and whether it is in a private pool of each segment that there was after the event
    at this position, by address: the snapshot's, with what came and went afterwards undone."""
    curve, memory = allocations.curve, allocations.memory
    later = curve.event[position + 1 :]
    gone = later[memory.action[later] == MemoryAction.SHRINK]
    came = memory.address[later[memory.action[later] == MemoryAction.GROW]]
    gone = gone[~np.isin(memory.address[gone], came)]
    kept = own & ~np.isin(segments.address, came)
    begins = np.r_[segments.address[kept], memory.address[gone]]
    size = np.r_[segments.bytes[kept], -memory.bytes[gone]]
    private = np.r_[segments.pool[kept] > 0, np.zeros(len(gone), np.bool_)]
    order = np.argsort(begins, kind="stable")
    return begins[order], size[order], private[order]


def _line(allocations: Allocations, live: Int64, share: Int64) -> tuple[Frame | None, int, int]:
    stack = allocations.stack[live]
    codes, number = np.unique(stack, return_inverse=True)
    held = np.bincount(number.reshape(-1), weights=share, minlength=len(codes))
    sums: dict[Frame, list[float]] = {}
    for code in np.argsort(-held, kind="stable").tolist():
        own = np.flatnonzero(stack == codes[code])
        frame = allocations.frame(int(live[own[0]]))
        if frame is not None:
            of_line = sums.setdefault(frame, [0.0, 0])
            of_line[0] += float(held[code])
            of_line[1] += len(own)
    if not sums:
        return None, 0, 0
    frame, (most, count) = max(sums.items(), key=lambda one: one[1][0])
    return (frame, round(most), int(count)) if most > 0 else (None, 0, 0)
