"""The memory of each rank at its peak: whose allocations failed, and what of it differs from rank to rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeVar

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.digest.digest import Digest, MemoryPeaks
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.vocabulary.frames import Frame, LineKind
from tb_gpudiag.wording.format import one_line
from tb_gpudiag.wording.vocabulary import MEMORY_KINDS

BEFORE: Final = pb.MemoryKind.Kind.Name(pb.MemoryKind.before)
"""Kind of what was there before the recording: of a snapshot without a history, everything."""

_UNKNOWN: Final = pb.MemoryKind.Kind.Name(pb.MemoryKind.unknown)
_NOTHING: Final = MemoryPeaks("", 0, 0, 0)

Held = dict[tuple[str, str, str, Frame], tuple[int, int]]
"""Device, kind, allocator and line of the user -> bytes and allocations."""


def peak_of(digest: Digest) -> MemoryPeaks:
    """Return the peaks of the device with the highest one."""
    return max(digest.about.memory, key=lambda peak: peak.peak_allocated_bytes, default=_NOTHING)


def held_at_peak(digest: Digest) -> Held:
    """Return what was allocated at the peaks."""
    found: Held = {}
    for row in digest.held.to_pylist():
        known = row["kind"] if row["kind"] in MEMORY_KINDS else _UNKNOWN  # a digest may be anybody's
        line_kind = LineKind.RUNNING if row["ran"] else LineKind.DEFINITION
        place = Frame(one_line(row["file"]), row["line"], one_line(row["function"]), line_kind)
        key = (row["device"], known, row["allocator"], place)
        held = found.get(key, (0, 0))
        found[key] = (held[0] + row["bytes"], held[1] + row["count"])
    return found


Named = TypeVar("Named")

# Allocators round sizes, and ranks of a healthy job differ a little.
SAME_WITHIN: Final = 0.05
# A kind or a place is named if it is at least this share of the difference.
NAMED_SHARE: Final = 0.2
MOST_NAMED: Final = 3


@dataclass(frozen=True)
class AgainstOthers:
    """How the memory of a member at its peak differs from the median of others, in bytes.

    holds: none if no rank is left to compare with. kinds, places: what most of the difference is, largest
    first; nothing where the others have no history. places: only those that differ as the whole does.
    """

    holds: Literal["none", "same", "more", "less"]
    others_bytes: int
    more_bytes: int
    kinds: list[tuple[str, int]]
    places: list[tuple[Frame, int]]


@dataclass(frozen=True, eq=False)
class RankMemory:
    """Memory of the ranks of a job, by member: of the fullest device of each.

    failed_bytes: that the last failed allocation asked for; 0 where none failed. All in bytes, shape
    (members,) each. failed_at: where it was asked for, as in a sentence. places: kind, allocator and place
    of what held memory at the peaks. held: its bytes, shape (places, members).
    """

    devices: list[str]
    allocated: Int64
    reserved: Int64
    capacity: Int64
    failed_bytes: Int64
    has_failed: Bool
    failed_at: list[str]
    places: list[tuple[str, str, Frame]]
    held: Int64

    @property
    def failed(self) -> Int64:
        """Members with a failed allocation, those that asked for most first."""
        members = np.flatnonzero(self.has_failed)
        return members[np.argsort(-self.failed_bytes[members], kind="stable")]

    @property
    def kinds(self) -> dict[str, Int64]:
        """Bytes of each kind at the peaks, shape (members,)."""
        names = dict.fromkeys(kind for kind, _, _ in self.places)
        of_place = np.array([kind for kind, _, _ in self.places], np.str_)
        return {name: self.held[of_place == name].sum(axis=0) for name in names}

    @property
    def without_history(self) -> Int64:
        """Members of whose memory nothing is known but how much it was."""
        unknown = self.kinds.get(BEFORE, np.zeros(len(self.allocated), np.int64))
        return np.flatnonzero((unknown == self.held.sum(axis=0)) & (unknown > 0))

    def against_others(self, member: int) -> AgainstOthers:
        """Compare a member with those whose allocations did not fail."""
        others = np.flatnonzero(~self.has_failed)
        if not len(others):
            return AgainstOthers("none", 0, 0, [], [])
        median = int(np.median(self.allocated[others]))
        more = int(self.allocated[member]) - median
        same = abs(more) < SAME_WITHIN * int(self.allocated[member])
        known = np.setdiff1d(others, self.without_history)
        kinds = self._differences(list(self.kinds.items()), member, known, more)
        places = self._differences(list(zip(self.places, self.held, strict=True)), member, known, more)
        return AgainstOthers(
            holds="same" if same else "more" if more > 0 else "less",
            others_bytes=median,
            more_bytes=more,
            kinds=kinds,
            places=[
                (place, size)
                for (kind, _, place), size in places
                if str(place) and kind != BEFORE and size * more > 0
            ],
        )

    def _differences(
        self, held: list[tuple[Named, Int64]], member: int, others: Int64, more: int
    ) -> list[tuple[Named, int]]:
        """Return how much more of each a member has than the median of others, if it is worth naming."""
        found = [(name, int(of[member] - np.median(of[others]))) for name, of in held if len(others)]
        worth = [one for one in found if abs(one[1]) >= NAMED_SHARE * abs(more)]
        return sorted(worth, key=lambda one: -abs(one[1]))[:MOST_NAMED]


def rank_memory_of(members: Sequence[Digest]) -> RankMemory:
    peaks = [peak_of(member) for member in members]
    columns: list[dict[tuple[str, str, Frame], int]] = []
    for member, peak in zip(members, peaks, strict=True):
        own = held_at_peak(member).items()
        columns.append({key[1:]: size for key, (size, _) in own if key[0] == peak.device})
    places = list(dict.fromkeys(place for column in columns for place in column))
    held = np.array([[column.get(place, 0) for column in columns] for place in places], np.int64)

    def figures(name: str) -> Int64:
        return np.array([getattr(peak, name) for peak in peaks], np.int64)

    return RankMemory(
        devices=[peak.device for peak in peaks],
        allocated=figures("peak_allocated_bytes"),
        reserved=figures("peak_reserved_bytes"),
        capacity=figures("capacity_bytes"),
        failed_bytes=figures("failed_bytes"),
        has_failed=figures("failures") > 0,
        failed_at=[one_line(peak.failed_at) for peak in peaks],
        places=places,
        held=held.reshape(len(places), len(members)),
    )
