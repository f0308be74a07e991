"""What of the memory at the peaks of two sides differs, by kind and by line of the code. A line that an edit
moved is one place."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from tb_gpudiag.digest.digest import Digest, MemoryPeaks
from tb_gpudiag.jobs.compare.side import Side
from tb_gpudiag.jobs.ranks.rank_memory import Held, held_at_peak, peak_of, rank_memory_of
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import place
from tb_gpudiag.report.essentials import code_place, preposition
from tb_gpudiag.rules.answer import place_at
from tb_gpudiag.vocabulary.frames import Frame
from tb_gpudiag.wording.format import count, more_bytes, one_line, share, size_bytes
from tb_gpudiag.wording.good_recording import RECORD_HISTORY
from tb_gpudiag.wording.vocabulary import MEMORY_KINDS, term

MOST_ROWS: Final = 50

MOST_LINES: Final = 200
"""Lines of a side, those with most memory, that may have moved. A report has a hundred of each device."""

# Allocators round sizes: a peak that moves by less is the same.
SAME_WITHIN: Final = 0.01

# The sentence names kinds and a line that are at least this share of the difference.
_NAMED: Final = 0.2

_Lines = list[tuple[Frame, Counter[tuple[str, str]]]]
"""Each with its bytes by kind and allocator."""

_Chain = tuple[int, int, tuple[tuple[Frame, Frame], ...]]
"""Points, bytes in common, and pairs of lines."""


def is_of_memory(side: Side) -> bool:
    """Whether the side shows memory and no time: snapshots, or timelines of memory."""
    return all(digest.about.kind != "trace" for digest in side.digests)


def held_changes(base: Side, candidate: Side) -> list[pb.HeldDifference]:
    """Return the places whose memory at the peak differs, largest difference first; none where a side does
    not show what held its memory. Of each side, the rank with the highest peak counts."""
    if memory_notes(base, candidate):
        return []
    one, other = (held_at_peak(_fullest(side)) for side in (base, candidate))
    devices = {device for device, *_ in one}, {device for device, *_ in other}
    if len(devices[0]) == len(devices[1]) == 1:  # the two are compared, whatever their numbers
        (device,) = devices[0]
        other = {(device, kind, by, at): held for (_, kind, by, at), held in other.items()}
    was = _moved_lines(one, other)
    now = {before: after for after, before in was.items()}
    of_base = {(on, kind, by, at, now.get(at, at)): held for (on, kind, by, at), held in one.items()}
    of_candidate = {(on, kind, by, was.get(at, at), at): held for (on, kind, by, at), held in other.items()}
    found = [
        pb.HeldDifference(
            device=one_line(device),
            kind=kind,
            allocator=one_line(allocator),
            place=place(place_at(at)),
            base_place=place(place_at(before)) if before.line != at.line else None,
            base_bytes=old[0],
            candidate_bytes=new[0],
            base_count=old[1],
            candidate_count=new[1],
        )
        for key in dict.fromkeys([*of_base, *of_candidate])
        for (device, kind, allocator, before, at) in [key]
        for old, new in [(of_base.get(key, (0, 0)), of_candidate.get(key, (0, 0)))]
        if old != new
    ]
    return sorted(found, key=lambda row: -abs(row.candidate_bytes - row.base_bytes))


def memory_sentence(base: Side, candidate: Side) -> str:
    """Say which side has the higher peak, of what, and whether an allocation failed on one side only."""
    one, other = (peak_of(_fullest(side)) for side in (base, candidate))
    sizes = [size_bytes(peak.peak_allocated_bytes) for peak in (one, other)]
    moved = other.peak_allocated_bytes - one.peak_allocated_bytes
    if abs(moved) <= SAME_WITHIN * one.peak_allocated_bytes:
        said = f"The peaks are the same within {share(SAME_WITHIN)}: {sizes[0]} and {sizes[1]}."
    else:
        said = f"The candidate allocates {more_bytes(moved)} at its peak: {sizes[1]} instead of {sizes[0]}."
        kinds, lines = Counter[int](), Counter[str]()
        for row in held_changes(base, candidate):
            if row.device in (one.device, other.device):
                kinds[row.kind] += int(row.candidate_bytes - row.base_bytes)
                if at := code_place(row.place, row.base_place):
                    lines[f"{preposition(row.place)} {at}"] += int(row.candidate_bytes - row.base_bytes)
        named = [
            f"{more_bytes(size)} of {term(MEMORY_KINDS, pb.MemoryKind.Kind.Name(kind)).noun}"
            for kind, size in sorted(kinds.items(), key=lambda item: -abs(item[1]))
            if abs(size) >= _NAMED * abs(moved)
        ]
        if named:
            said += f" It has {', '.join(named)}."
        line, size = max(lines.items(), key=lambda item: item[1] * moved, default=("", 0))
        if size * moved >= _NAMED * moved**2:
            said += f" The largest part is {more_bytes(size)} {line}."
    return f"{said}{_failure(one, other, known=not memory_notes(base, candidate))}"


def memory_notes(base: Side, candidate: Side) -> list[str]:
    """Say which side does not show what held its memory."""
    peaks = rank_memory_of([_fullest(base), _fullest(candidate)])
    bare = [("base", "candidate")[at] for at in peaks.without_history.tolist()]
    return [
        f"The {name} has no history: nothing shows what held its memory. {RECORD_HISTORY}." for name in bare
    ]


def _failure(base: MemoryPeaks, candidate: MemoryPeaks, *, known: bool) -> str:
    """known: of both sides; without a history, nothing shows a failure."""
    if bool(base.failures) == bool(candidate.failures):
        return " Allocations failed on both sides." if base.failures else ""
    failed, name, other = (
        (candidate, "candidate", "base") if candidate.failures else (base, "base", "candidate")
    )
    place = f" {failed.failed_at}".rstrip()
    asked = f", the last one of {size_bytes(failed.failed_bytes)}{place}" if failed.failed_bytes else ""
    none = f", and none in the {other}" * known
    return f" {count(failed.failures, 'allocation')} failed in the {name}{asked}{none}."


def _moved_lines(base: Held, candidate: Held) -> dict[Frame, Frame]:
    """Return the lines of the candidate that are lines of the base in an edited file, or in a folder of
    another name. They are in the same function, and in the same order."""
    of_base, of_candidate = (_by_line(held) for held in (base, candidate))
    files, others = ({at.file for at, _ in lines} for lines in (of_base, of_candidate))
    old, new = _by_name(files - others), _by_name(others - files)
    renamed = {new[name]: old[name] for name in new.keys() & old.keys()}
    functions = defaultdict[tuple[str, str], tuple[_Lines, _Lines]](lambda: ([], []))
    for at, holds in of_base:
        functions[at.function, at.file][0].append((at, holds))
    for at, holds in of_candidate:
        functions[at.function, renamed.get(at.file, at.file)][1].append((at, holds))
    pairs = (pair for sides in functions.values() for pair in _pairs(*sides))
    return {after: before for before, after in pairs if before != after}


def _by_line(held: Held) -> _Lines:
    """Return the lines with most memory, ascending."""
    found = defaultdict[Frame, Counter[tuple[str, str]]](Counter)
    for (_, kind, allocator, at), (size, _) in held.items():
        found[at][kind, allocator] += size
    most = sorted(found.items(), key=lambda one: -one[1].total())[:MOST_LINES]
    return sorted(most, key=lambda one: one[0].line)


def _by_name(files: Iterable[str]) -> dict[str, str]:
    """Return the files that alone have their name, by it."""
    named = {file: file.rpartition("/")[2] for file in files}
    names = Counter(named.values())
    return {name: file for file, name in named.items() if names[name] == 1}


def _pairs(base: _Lines, candidate: _Lines) -> tuple[tuple[Frame, Frame], ...]:
    """Return the pairs of lines of one function that need the fewest edits, of these the ones that have most
    in common. A pair has two points, and an edit, which moves all lines below it as far, costs one."""
    above: list[_Chain] = [(0, 0, ())] * (len(candidate) + 1)  # the best so far, by lines of the candidate
    by_move = defaultdict[int, _Chain](lambda: (-1, 0, ()), {0: above[0]})  # the best whose last moved so
    for old, its in base:
        row = above[:1]
        for at, (new, others) in enumerate(candidate):
            row.append(max(row[-1], above[at + 1]))
            if common_bytes := (its & others).total():
                move, (points, size, pairs) = new.line - old.line, above[at]
                points, size, pairs = max(by_move[move], (points - 1, size, pairs))
                chain = points + 2, size + common_bytes, (*pairs, (old, new))
                by_move[move], row[-1] = max(by_move[move], chain), max(row[-1], chain)
        above = row
    return above[-1][2]


def _fullest(side: Side) -> Digest:
    return max(side.digests, key=lambda digest: peak_of(digest).peak_allocated_bytes)
