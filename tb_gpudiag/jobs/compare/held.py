"""What the memory at the peak of two sides is, and what of it differs."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tb_gpudiag.digest.digest import Digest, MemoryPeaks, numbers, texts
from tb_gpudiag.jobs.compare.side import Side
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.wording.format import count, one_line, share, size_bytes
from tb_gpudiag.wording.vocabulary import MEMORY_KINDS, term

MOST_ROWS: Final = 50

# Allocators round sizes: a peak that moves by less is the same.
SAME_WITHIN: Final = 0.01

_UNKNOWN: Final = pb.MemoryKind.Kind.Name(pb.MemoryKind.unknown)

# The sentence names kinds that are at least this share of the difference.
_NAMED_KIND: Final = 0.2


def is_of_memory(side: Side) -> bool:
    """Whether the side shows memory and no time: snapshots, or timelines of memory."""
    return all(digest.about.kind != "trace" for digest in side.digests)


def held_changes(base: Side, candidate: Side) -> list[pb.HeldDifference]:
    """Return the places whose memory at the peak differs, largest difference first. Of each side, the rank
    with the highest peak counts."""
    one, other = (_held(_fullest(side)) for side in (base, candidate))
    devices = {device for device, *_ in one}, {device for device, *_ in other}
    if len(devices[0]) == len(devices[1]) == 1:  # the two are compared, whatever their numbers
        (device,) = devices[0]
        other = {(device, kind, by, place): held for (_, kind, by, place), held in other.items()}
    found = [
        pb.HeldDifference(
            device=one_line(device),
            kind=kind,
            allocator=one_line(allocator),
            place=one_line(place),
            base_bytes=before[0],
            candidate_bytes=after[0],
            base_count=before[1],
            candidate_count=after[1],
        )
        for key in dict.fromkeys([*one, *other])
        for (device, kind, allocator, place) in [key]
        for before, after in [(one.get(key, (0, 0)), other.get(key, (0, 0)))]
        if before != after
    ]
    return sorted(found, key=lambda row: -abs(row.candidate_bytes - row.base_bytes))


def memory_sentence(base: Side, candidate: Side) -> str:
    """Say which side has the higher peak, of what, and whether an allocation failed on one side only."""
    one, other = _peak(base), _peak(candidate)
    sizes = [size_bytes(peak.peak_allocated_bytes) for peak in (one, other)]
    moved = other.peak_allocated_bytes - one.peak_allocated_bytes
    if abs(moved) <= SAME_WITHIN * one.peak_allocated_bytes:
        said = f"The peaks are the same within {share(SAME_WITHIN)}: {sizes[0]} and {sizes[1]}."
    else:
        by = f"{size_bytes(abs(moved))} {'more' if moved > 0 else 'less'}"
        said = f"The candidate allocates {by} at its peak: {sizes[1]} instead of {sizes[0]}."
        kinds: Counter[int] = Counter()
        for row in held_changes(base, candidate):
            if row.device in (one.device, other.device):
                kinds[row.kind] += int(row.candidate_bytes - row.base_bytes)
        named = [
            f"{size_bytes(abs(size))} {'more' if size > 0 else 'less'} of {_noun(kind)}"
            for kind, size in sorted(kinds.items(), key=lambda item: -abs(item[1]))
            if abs(size) >= _NAMED_KIND * abs(moved)
        ]
        if named:
            said += f" It has {', '.join(named)}."
    return f"{said}{_failure(one, other)}"


def _noun(kind: int) -> str:
    return term(MEMORY_KINDS, pb.MemoryKind.Kind.Name(kind)).noun


def _failure(base: MemoryPeaks, candidate: MemoryPeaks) -> str:
    if bool(base.failures) == bool(candidate.failures):
        return " Allocations failed on both sides." if base.failures else ""
    failed, name, other = (
        (candidate, "candidate", "base") if candidate.failures else (base, "base", "candidate")
    )
    asked = f", the last one of {size_bytes(failed.failed_bytes)}" if failed.failed_bytes else ""
    return f" {count(failed.failures, 'allocation')} failed in the {name}{asked}, and none in the {other}."


def _fullest(side: Side) -> Digest:
    return max(side.digests, key=lambda digest: _peak_of(digest).peak_allocated_bytes)


def _peak(side: Side) -> MemoryPeaks:
    return _peak_of(_fullest(side))


def _peak_of(digest: Digest) -> MemoryPeaks:
    return max(
        digest.about.memory, key=lambda peak: peak.peak_allocated_bytes, default=MemoryPeaks("", 0, 0, 0)
    )


def _held(digest: Digest) -> dict[tuple[str, str, str, str], tuple[int, int]]:
    """Return bytes and allocations at the peak by device, kind, allocator and place."""
    table = digest.held
    found: dict[tuple[str, str, str, str], tuple[int, int]] = {}
    names = (texts(table, name) for name in ("device", "kind", "allocator", "place"))
    figures = (numbers(table, name).tolist() for name in ("bytes", "count"))
    for device, kind, allocator, place, size, number in zip(*names, *figures, strict=True):
        known = kind if kind in MEMORY_KINDS else _UNKNOWN  # a digest may be anybody's
        key = (device, known, allocator, place)
        held = found.get(key, (0, 0))
        found[key] = (held[0] + size, held[1] + number)
    return found
