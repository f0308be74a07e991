"""Save the good events of a text in which some are not JSON.

The text is split into pieces where events plausibly start, whatever the quotes and brackets before that place
say. So one unbalanced quote costs one event, not all the events after it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_gpudiag.arrays import Int32, Int64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.kineto.fields import is_json
from tb_gpudiag.trace.kineto.structure import Elements, Marks, segmented
from tb_gpudiag.vocabulary.patterns import lazy_re

_SPACE: Final = b" \t\r\n"
# A value that is not an event, if it is simple enough for an expression, and the comma after it.
_VALUE: Final = lazy_re(rb"(?:[-+.0-9A-Za-z]+|\"[^\"\\,{}\[\]]*\"|\[[^\",{}\[\]]*\])[ \t\r\n]*,[ \t\r\n]*")
# Between two events: the end of one, such values, and the start of the next with a key that events have.
BETWEEN: Final = lazy_re(
    rb"\}(?P<gap>[ \t\r\n]*,[ \t\r\n]*(?:" + _VALUE.pattern + rb"){0,1000})"
    rb'(?=\{[ \t\r\n]*"(?:ph|cat|name|pid|tid|ts|dur|id|bp|s|args)")'
)
_COMMA: Final = lazy_re(rb"[ \t\r\n]*,")
# What may follow the array of events: another key, the end of the object or the end of the file.
_AFTER_ARRAY: Final = lazy_re(rb'[ \t\r\n]*(?:,[ \t\r\n]*"[^"]*"[ \t\r\n]*:|\}[ \t\r\n]*\Z|\Z)')
# The same after an event so broken that its brackets mean nothing.
_BROKEN_END: Final = lazy_re(
    rb'(?P<array>\}[ \t\r\n]*\])[ \t\r\n]*(?:,[ \t\r\n]*"[^"]*"[ \t\r\n]*:|\}?[ \t\r\n]*\Z)'
)
# Also splits an event that contains a list of objects with event-like keys. Join at most this many pieces.
_MOST_JOINED: Final = 64
# If more pieces than this are bad, the cause is not events with such lists: do not try to join pieces.
_MOST_BAD: Final = 10_000


@dataclass(frozen=True)
class Salvaged:
    """What could be saved of a text."""

    accepted: bytes  # the good elements, separated by commas
    malformed: int  # pieces that are not JSON, and values between pieces
    leftover: bytes  # the last piece, if it may continue after the text
    max_depth: int
    rest: bytes | None  # what follows the array; None if its end was not found


def salvage(text: bytes, final: bool) -> Salvaged:
    """Save the good elements of `text`, which starts between two. `final`: nothing follows it in the file."""
    pieces = _Pieces(text, final)
    accepted: list[bytes] = []
    malformed = 0
    leftover, rest = b"", None
    done = 0  # pieces dealt with
    for i in pieces.bad:
        if i < done:
            continue  # joined to an earlier piece, or after the array
        accepted += pieces.texts[done:i]
        malformed += sum(pieces.values_after[done:i])
        saved = pieces.save(i)
        accepted.append(saved.accepted)
        malformed += saved.malformed + pieces.values_after[saved.next - 1]
        leftover, rest = saved.leftover, saved.rest
        done = saved.next
    accepted += pieces.texts[done:]
    malformed += sum(pieces.values_after[done:])
    return Salvaged(
        accepted=b",".join(filter(None, (piece.strip(_SPACE + b",") for piece in accepted))),
        malformed=malformed,
        leftover=leftover,
        max_depth=pieces.max_depth,
        rest=rest,
    )


def by_brackets(text: bytes, found: Elements, limits: Limits, *, final: bool) -> Salvaged | None:
    """Take the whole elements of `text`, which starts between two, by its brackets. They need not be JSON.

    Return None if the brackets cannot be right. `final`: nothing follows the text in the file.
    """
    end = found.array_end
    if end >= 0:
        if not ends_array(text, end):
            if text[end : end + 1] != b"]" or BETWEEN.search(text, end):
                return None  # more events follow: a stray bracket
            if not final and len(text) <= limits.max_element_bytes:
                return Salvaged(b"", 0, text, 0, None)  # more text shows whether events follow
        return Salvaged(text[:end], 0, b"", found.depth, text[end + 1 :])
    leftover = text[found.last_end :].lstrip(_SPACE).removeprefix(b",").lstrip(_SPACE)
    # An unbalanced quote or bracket may have swallowed events. The depth inside it means nothing.
    swallows = BETWEEN.search(leftover) is not None or broken_end(leftover) >= 0
    if swallows and final:
        return None
    depth = found.depth if swallows else max(found.depth, found.open_depth)
    return Salvaged(text[: found.last_end], 0, leftover, depth, None)


@dataclass(frozen=True)
class _Saved:
    """What could be saved of one bad piece."""

    next: int  # the first piece after those used up
    accepted: bytes = b""
    malformed: bool = False
    leftover: bytes = b""
    rest: bytes | None = None


class _Pieces:
    """A text split where events plausibly start, and which pieces of it the parser refuses."""

    def __init__(self, text: bytes, final: bool) -> None:
        gaps = [match.span("gap") for match in BETWEEN.finditer(text)]
        self.values_after = [*(len(_VALUE.findall(text, *gap)) for gap in gaps), 0]
        starts = [0, *(end for _, end in gaps)]
        stops = [*(start for start, _ in gaps), len(text)]
        marks = segmented(text, np.array(starts, np.int64))
        self.texts = [text[start:stop] for start, stop in zip(starts, stops, strict=True)]
        bad = np.array([i for i, piece in enumerate(self.texts) if not _are_elements(piece)], np.int64)
        self.bad: list[int] = bad.tolist()
        self.max_depth = int(marks.depth.max(initial=0))
        self._text = text
        self._final = final
        self._stops = stops
        self._depth_after = _last_depths(marks, len(self.texts))
        self._array_ends = _array_ends(text, marks, starts)
        self._joins = _joins(self._depth_after, bad)
        firsts = _firsts(text, marks, starts)
        # What each bad piece may give: the text before the end of the array, its first element, or the piece
        # joined with later ones. Only what the parser accepts is here.
        self._to_end = self._good({i: end.at for i, end in self._array_ends.items()})
        self._first = self._good(firsts)
        self._joined = _passing({i: text[starts[i] : stops[j]] for i, j in self._joins.items()})

    def _good(self, stops: dict[int, int]) -> dict[int, bytes]:
        """Return the bad pieces that are elements up to their stop."""
        return _passing({i: self.texts[i][: stops[i]] for i in self.bad if i in stops})

    def save(self, i: int) -> _Saved:
        """Save what is good of the bad piece `i`."""
        end = self._array_ends.get(i)
        if end is not None and (i in self._to_end or end.plausible):
            return self._save_to_end(i, end)
        if i in self._joined:
            return _Saved(self._joins[i] + 1, self._joined[i])
        if i == len(self.texts) - 1:
            return self._save_last(i)
        return _Saved(i + 1, self._first.get(i, b""), malformed=True)

    def _save_to_end(self, i: int, end: _ArrayEnd) -> _Saved:
        """Save the piece in which the array ends: no later piece is part of the array."""
        return _Saved(
            len(self.texts),
            self._to_end.get(i) or self._first.get(i, b""),
            malformed=i not in self._to_end,
            rest=self.texts[i][end.at + 1 :] + self._text[self._stops[i] :],
        )

    def _save_last(self, i: int) -> _Saved:
        piece = self.texts[i]
        if not self._final:
            return _Saved(i + 1, leftover=piece)
        end = broken_end(piece)
        whole = bool(self._depth_after[i] == 0) and piece.rstrip(_SPACE).endswith(b"}")
        return _Saved(
            i + 1,
            self._first.get(i, b""),
            malformed=end >= 0 or whole,  # otherwise the file is cut off inside it
            rest=piece[end:] if end >= 0 else None,
        )


def ends_array(text: bytes, at: int) -> bool:
    """Return whether the text from `at` looks like the end of the array of events."""
    return text[at : at + 1] == b"]" and _AFTER_ARRAY.match(text, at + 1) is not None


def broken_end(text: bytes) -> int:
    """Find the end of the array inside an element too broken for brackets to show it; -1 if not found.

    Going by the quotes and brackets before it, such an end is inside a string, or closes everything open. The
    result is the position just after it.
    """
    marks = segmented(text, np.zeros(1, np.int64))
    for match in _BROKEN_END.finditer(text):
        end = match.end("array")
        mark = int(np.searchsorted(marks.at, end - 1))
        outside_strings = mark < len(marks.at) and int(marks.at[mark]) == end - 1
        if not outside_strings or int(marks.depth[mark]) <= 0:
            return end
    return -1


@dataclass(frozen=True)
class _ArrayEnd:
    at: int  # position of the `]` in its piece
    plausible: bool  # it follows a `}`, so it ends the array even if the text before it is not JSON


def _are_elements(piece: bytes) -> bool:
    """Return whether a piece is an element, or several separated by commas."""
    return is_json(b"[" + piece + b"]")


def _passing(pieces: dict[int, bytes]) -> dict[int, bytes]:
    """Keep the pieces that are elements."""
    return {i: piece for i, piece in pieces.items() if _are_elements(piece)}


def _firsts(text: bytes, marks: Marks, starts: list[int]) -> dict[int, int]:
    """End of the first element, for pieces in which another one follows it by the brackets."""
    closed = np.flatnonzero(marks.depth == 0)
    segments, first = np.unique(marks.segment[closed], return_index=True)
    ends = (marks.at[closed[first]] + 1).tolist()
    return {
        segment: end - starts[segment]
        for segment, end in zip(segments.tolist(), ends, strict=True)
        if _COMMA.match(text, end)
    }


def _array_ends(text: bytes, marks: Marks, starts: list[int]) -> dict[int, _ArrayEnd]:
    """End of the array, for pieces with a `]` that closes more than they open and looks like that end."""
    below = np.flatnonzero(marks.depth < 0)
    segments, first = np.unique(marks.segment[below], return_index=True)
    ends: dict[int, _ArrayEnd] = {}
    for segment, mark in zip(segments.tolist(), below[first].tolist(), strict=True):
        at = int(marks.at[mark])
        if ends_array(text, at):
            before = text[starts[segment] : at].rstrip(_SPACE)
            ends[segment] = _ArrayEnd(at - starts[segment], before.endswith(b"}"))
    return ends


def _last_depths(marks: Marks, pieces: int) -> Int32:
    """Depth at the end of each piece, shape (pieces,)."""
    depths = np.zeros(pieces, np.int32)
    depths[marks.segment] = marks.depth  # the last mark of each segment wins
    return depths


def _joins(depth_after: Int32, bad: Int64) -> dict[int, int]:
    """Return, for bad pieces that end inside brackets, the later piece that closes all of these brackets."""
    joins: dict[int, int] = {}
    if len(bad) > _MOST_BAD:
        return joins
    total = np.cumsum(depth_after)
    for i in bad[depth_after[bad] > 0].tolist():
        closed = np.flatnonzero(total[i + 1 : i + 1 + _MOST_JOINED] <= total[i] - depth_after[i])
        if len(closed):
            joins[i] = i + 1 + int(closed[0])
    return joins
