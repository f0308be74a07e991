"""Ways: how a request that failed might have fit, replayed: expandable segments, half of the
batch, blocks of the model whose activations are computed again.

Replays show what the recorded allocations would have done up to that request, not what comes after it. Blocks
are modules that one line calls again and again. A snapshot shows neither
modules nor their numbers, but blocks of one kind are called by the same line, and each begins with the same
allocations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.memory.allocator_changes import FREED, AllocatorChanges, Start, fits, most_allocated
from tb_gpudiag.facts.memory.memory_kinds import KINDS, Allocations, MemoryKind
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.frames import Frame, innermost_place, parse_frame
from tb_gpudiag.vocabulary.torch_frames import calls_module


class WayKind(Enum):
    EXPANDABLE = "expandable_segments:True"
    HALF_BATCH = "half of the batch"
    CHECKPOINT = "checkpointing"


@dataclass(frozen=True, eq=False)
class Way:
    """One way, replayed with the capacity, at its best and at its worst.

    low_bytes, high_bytes: the most that is allocated, up to the request and with it.
    fits: in both cases; may_fit: in one of them.
    blocks: for CHECKPOINT, those whose activations are dropped.
    """

    kind: WayKind
    fits: bool
    may_fit: bool
    low_bytes: int
    high_bytes: int
    blocks: Blocks | None = None


def find_ways(allocations: Allocations, start: Start, changes: AllocatorChanges, capacity: int) -> list[Way]:
    """Try all ways to make the request that failed fit into this capacity."""
    peak = most_allocated(start, changes)
    does = fits(start, changes, capacity, expandable=True)
    ways = [Way(WayKind.EXPANDABLE, does, does, peak, peak)]
    halved = [_halved(allocations, changes, sure=sure) for sure in (False, True)]
    ways.append(_way(WayKind.HALF_BATCH, start, halved, capacity))
    activation = _of_kinds(allocations, MemoryKind.ACTIVATION)
    dropped = [
        (
            [
                _checkpointed(allocations, changes, blocks, activation, keeps_largest=keeps)
                for keeps in (False, True)
            ],
            blocks,
        )
        for blocks in find_blocks(allocations, activation)
    ]
    if dropped:
        cases, best = min(dropped, key=lambda one: most_allocated(start, one[0][1]))
        ways.append(_way(WayKind.CHECKPOINT, start, cases, capacity, best))
    return ways


def fits_without(start: Start, changes: AllocatorChanges, capacity: int, gone: Int64) -> bool:
    """Whether the request that failed fits if these allocations had not been there. gone: their indices."""
    rest = Start(
        start.segments, [block for block in start.used if block[0] not in set(gone.tolist())], start.private
    )
    kept = ~np.isin(changes.number, gone) | (changes.size < FREED)
    left = AllocatorChanges(*(column[kept] for column in changes))
    return fits(rest, left, capacity)


def _way(
    kind: WayKind, start: Start, cases: list[AllocatorChanges], capacity: int, blocks: Blocks | None = None
) -> Way:
    does = [fits(start, changes, capacity) for changes in cases]
    peaks = [most_allocated(start, changes) for changes in cases]
    return Way(kind, all(does), any(does), min(peaks), max(peaks), blocks)


def _of_kinds(allocations: Allocations, *wanted: MemoryKind) -> Bool:
    return np.isin(allocations.kind, [*map(KINDS.index, wanted)])


def _halved(allocations: Allocations, changes: AllocatorChanges, *, sure: bool) -> AllocatorChanges:
    """Halve what grows with the batch: activations and inputs for sure, and maybe temporaries and what the
    forward pass allocates for unknown use. Inputs that are older than the last part of the model, or the last
    optimizer's step, may be the whole data set."""
    inputs = _of_kinds(allocations, MemoryKind.INPUT)
    if sure:
        older = np.flatnonzero(np.isin(allocations.phase, (Phase.PARAMETER, Phase.OPTIMIZER)))
        inputs[: older.max(initial=0)] = False
    scales = inputs | _of_kinds(allocations, MemoryKind.ACTIVATION)
    passes = np.isin(allocations.phase, (Phase.FORWARD, Phase.BACKWARD))
    if not sure:
        scales |= passes & _of_kinds(allocations, MemoryKind.TEMPORARY)
        scales |= (allocations.phase == Phase.FORWARD) & _of_kinds(allocations, MemoryKind.UNKNOWN)
    scales &= ~allocations.found
    failed = int(allocations.context.phase[allocations.curve.event[changes.position[-1]]])
    last = failed == Phase.FORWARD or (not sure and failed != Phase.OPTIMIZER)
    chosen = np.r_[scales, last][np.clip(changes.number, 0, len(allocations))]
    chosen &= (changes.size > 0) & (changes.number >= 0)
    return changes._replace(size=np.where(chosen, -(-changes.size // 2), changes.size))


def _checkpointed(
    allocations: Allocations,
    changes: AllocatorChanges,
    blocks: Blocks,
    activation: Bool,
    *,
    keeps_largest: bool,
) -> AllocatorChanges:
    """Free the activations of each block when it returns, but for its result, and allocate them again when
    the backward pass first frees one of them."""
    rows = list(_moved(allocations, blocks, activation, keeps_largest=keeps_largest))
    number, at, size = np.array(rows, np.float64).reshape(-1, 3).T
    gone = np.unique(number[size == FREED]).astype(np.int64)
    # What was freed in the backward pass is a second allocation then, with a number of its own.
    again = np.isin(changes.number, gone) & (changes.size == FREED)
    second = len(allocations) + 1
    numbers = np.r_[np.where(again, changes.number + second, changes.number), number.astype(np.int64)]
    numbers[len(again) :] += np.where(size > 0, second, 0)
    place = np.r_[changes.position.astype(np.float64), at]
    order = np.argsort(place, kind="stable")
    order = order[place[order] <= changes.position[-1]]
    sizes = np.r_[changes.size, size.astype(np.int64)]
    nothing = np.full(len(rows), NONE)
    owner = np.zeros(len(allocations), np.int64)
    made = (changes.size > 0) & (changes.number < len(allocations))
    owner[changes.number[made]] = changes.owner[made]
    return AllocatorChanges(
        numbers[order],
        sizes[order],
        np.r_[changes.address, nothing][order],
        np.r_[changes.position, at.astype(np.int64)][order],
        np.r_[changes.reserved, nothing][order],
        np.r_[changes.owner, owner[number.astype(np.int64)]][order],
    )


def _moved(
    allocations: Allocations, blocks: Blocks, activation: Bool, *, keeps_largest: bool
) -> Iterator[tuple[int, float, int]]:
    """Yield (number, place, size) of what is freed earlier (size FREED) and allocated again."""
    freed = allocations.freed
    for block in blocks.calls:
        dropped = _dropped(allocations, block, activation, keeps_largest=keeps_largest)
        back = min(filter(lambda at: at != NONE, freed[dropped].tolist()), default=NONE)
        for i in dropped:
            yield i, block.end + 0.5, FREED
            if back != NONE:
                yield i, back - 0.5, int(allocations.bytes[i])


def _dropped(allocations: Allocations, block: Block, activation: Bool, *, keeps_largest: bool) -> list[int]:
    """Return the activations of a block but for its result, the last one, and perhaps the largest one."""
    freed = allocations.freed[block.own]
    held = block.own[activation[block.own] & ((freed == NONE) | (freed > block.end))]
    kept = held[-1:]
    if keeps_largest and len(held):
        kept = np.r_[kept, held[allocations.bytes[held].argmax()]]
    return held[~np.isin(held, kept)].tolist()


MOST_TRIED = 8
"""Most lines that are tried, those with most activations first: a model has a loop or two over its blocks."""


@dataclass(frozen=True, eq=False)
class Block:
    """One call of a block: indices of its allocations, and the position at which it returns."""

    own: Int64
    end: int


@dataclass(frozen=True, eq=False)
class Blocks:
    """Calls of the blocks of one line, in order. One that has not returned is not among them."""

    frame: Frame | None  # the calling line
    calls: list[Block]


def find_blocks(allocations: Allocations, activation: Bool) -> list[Blocks]:
    """Return the lines that call blocks, two calls or more each; of lines that call each other with the same
    activations, the inner one first. activation: mask, shape (a,)."""
    inside = (allocations.phase == Phase.FORWARD) & ~allocations.found & (allocations.stack != NONE)
    held = np.bincount(
        allocations.stack[inside & activation].astype(np.int64),
        weights=allocations.bytes[inside & activation],
        minlength=len(allocations.memory.stacks),
    )
    codes_of, bytes_of = defaultdict[_Call, list[int]](list), defaultdict[_Call, float](float)
    for code in np.unique(allocations.stack[inside]).tolist():
        for site in _call_sites(allocations.memory.stacks[code]):
            codes_of[site].append(code)
            bytes_of[site] += held[code]
    sites = sorted(bytes_of, key=lambda site: (-bytes_of[site], -len(site.caller)))[:MOST_TRIED]
    forward = np.flatnonzero(inside)
    found = [_blocks(allocations, forward, site, codes_of[site]) for site in filter(bytes_of.get, sites)]
    return [blocks for blocks in found if len(blocks.calls) > 1]


class _Call(NamedTuple):
    """caller: the beginning of a stack that ends where a module is called. file, function: the module's
    forward pass: a sequence calls all of its modules at one line."""

    caller: str
    file: str
    function: str


def _call_sites(stack: str) -> list[_Call]:
    lines = stack.split("\n")
    calls, found = [*map(calls_module, lines)], []
    for i in range(len(lines) - 1):
        if calls[i + 1] and not calls[i]:
            frame = next((parse_frame(lines[k]) for k in range(i + 1, len(lines)) if not calls[k]), None)
            called = (frame.file, frame.function) if frame is not None else ("", "")
            found.append(_Call("\n".join(lines[: i + 1]), *called))
    return found


def _blocks(allocations: Allocations, forward: Int64, site: _Call, codes: list[int]) -> Blocks:
    """Return the calls of a line. A call ends where others allocate, and where the next one begins with the
    allocations that the first one begins with."""
    member = np.isin(allocations.stack[forward], codes)
    own = forward[member]
    first = allocations.stack[own] == allocations.stack[own[0]]
    begins = np.flatnonzero(
        first & ~np.r_[False, first[:-1]] | np.r_[True, np.diff(np.flatnonzero(member)) > 1]
    )
    calls = []
    for begin, behind in zip(begins.tolist(), [*begins[1:].tolist(), NONE], strict=True):
        if behind == NONE and own[-1] + 1 >= len(allocations):  # no sign that the call has returned
            break
        of_call = own[begin : behind if behind != NONE else None]
        calls.append(Block(of_call, int(allocations.position[of_call[-1]])))
    return Blocks(innermost_place(site.caller), calls)
