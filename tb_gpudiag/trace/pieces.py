"""Events one by one, where some of a stretch are not JSON: each is judged by itself.

The text is split where events plausibly begin, whatever quotes and brackets before that seem to say, so that
one unbalanced quote costs one event and not all that follow it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_gpudiag.trace.events import Int32, Int64
from tb_gpudiag.trace.parser import Parser
from tb_gpudiag.trace.structure import Marks, segmented

_SPACE: Final = b" \t\r\n"
# Between two events: the end of one, and the beginning of the next with a key that events have.
BETWEEN: Final = re.compile(
    rb"\}(?P<gap>[ \t\r\n]*,[ \t\r\n]*)"
    rb'(?=\{[ \t\r\n]*"(?:ph|cat|name|pid|tid|ts|dur|id|bp|s|args)")'
)
_COMMA: Final = re.compile(rb"[ \t\r\n]*,")
# What may follow the array of events: another key, the end of the object, or the end of the file.
_AFTER_ARRAY: Final = re.compile(rb'[ \t\r\n]*(?:,[ \t\r\n]*"[^"]*"[ \t\r\n]*:|\}[ \t\r\n]*\Z|\Z)')
# The same behind an event that is so broken that brackets cannot be told from text.
_BROKEN_END: Final = re.compile(
    rb'(?P<array>\}[ \t\r\n]*\])[ \t\r\n]*(?:,[ \t\r\n]*"[^"]*"[ \t\r\n]*:|\}?[ \t\r\n]*\Z)'
)
# An event that holds a list of objects with event-like keys is split in pieces. So many may be joined again.
_MOST_JOINED: Final = 64
# Where more pieces than this are bad, they are not events with such lists, and joining is not tried.
_MOST_BAD: Final = 10_000


@dataclass(frozen=True)
class Judged:
    """What the pieces of a text came to."""

    accepted: bytes  # the good elements, with commas between
    malformed: int  # pieces that are no JSON
    leftover: bytes  # the last piece, where it may go on after the text
    max_depth: int
    rest: bytes | None  # what follows the array, where its end was found


def judge(text: bytes, parser: Parser, final: bool) -> Judged:
    """Judge the elements of `text`, which begins between two. `final`: nothing follows it in the file."""
    gaps = [match.span("gap") for match in BETWEEN.finditer(text)]
    starts = [0, *(end for _, end in gaps)]
    stops = [*(start for start, _ in gaps), len(text)]
    pieces = [text[start:stop] for start, stop in zip(starts, stops, strict=True)]
    bad = np.flatnonzero(~_elements(parser, pieces))
    marks = segmented(text, np.array(starts, np.int64))
    depth_after = _last_depths(marks, len(pieces))

    ends = _array_ends(text, marks, starts)
    joins = _joins(depth_after, bad)
    firsts = _firsts(text, marks, starts)
    of_bad = bad.tolist()
    to_end = _passing(parser, {i: pieces[i][: ends[i].at] for i in of_bad if i in ends})
    joined = _passing(parser, {i: text[starts[i] : stops[j]] for i, j in joins.items()})
    first = _passing(parser, {i: pieces[i][: firsts[i]] for i in of_bad if i in firsts})

    accepted: list[bytes] = []
    malformed = 0
    leftover, rest = b"", None
    following = 0  # the first piece that is not dealt with
    for i in of_bad:
        if i < following:
            continue  # joined to an earlier one
        accepted += pieces[following:i]
        following = i + 1
        if i in ends and (i in to_end or ends[i].plausible):
            accepted.append(to_end.get(i) or first.get(i, b""))
            malformed += i not in to_end
            rest = pieces[i][ends[i].at + 1 :] + text[stops[i] :]
            following = len(pieces)
            break
        if i in joined:
            accepted.append(joined[i])
            following = joins[i] + 1
            continue
        if i == len(pieces) - 1 and not final:
            leftover = pieces[i]
            continue
        accepted.append(first.get(i, b""))
        if i < len(pieces) - 1:
            malformed += 1
        else:
            end = broken_end(pieces[i])
            whole = depth_after[i] == 0 and pieces[i].rstrip(_SPACE).endswith(b"}")
            malformed += end >= 0 or bool(whole)  # else the file was cut off within it
            rest = pieces[i][end:] if end >= 0 else None
    accepted += pieces[following:]
    return Judged(
        accepted=b",".join(filter(None, (piece.strip(_SPACE + b",") for piece in accepted))),
        malformed=malformed,
        leftover=leftover,
        max_depth=int(marks.depth.max(initial=0)),
        rest=rest,
    )


def ends_array(text: bytes, at: int) -> bool:
    """Whether the bracket at this place, and what follows it, look like the end of the array of events."""
    return text[at : at + 1] == b"]" and _AFTER_ARRAY.match(text, at + 1) is not None


def plausible_begin(text: bytes) -> int:
    """Where the first event begins that follows another, or -1."""
    match = BETWEEN.search(text)
    return -1 if match is None else match.end()


def broken_end(text: bytes) -> int:
    """Just after what looks like the end of the array, in an element too broken for brackets to show it: it
    lies within a string by the quotes before it, or closes all that is open; -1 where there is none."""
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
    plausible: bool  # all around it looks like the array's end, even if what is before it is no JSON


def _elements(parser: Parser, pieces: list[bytes]) -> npt.NDArray[np.bool_]:
    """Which of the pieces are elements, or several with commas between."""
    return parser.valid([b"[" + piece + b"]" for piece in pieces])


def _passing(parser: Parser, pieces: dict[int, bytes]) -> dict[int, bytes]:
    """Those of the pieces that are elements."""
    passes = _elements(parser, list(pieces.values()))
    return {i: piece for (i, piece), good in zip(pieces.items(), passes.tolist(), strict=True) if good}


def _firsts(text: bytes, marks: Marks, starts: list[int]) -> dict[int, int]:
    """For pieces in which another element follows the first by its brackets: where in the piece that ends."""
    closed = np.flatnonzero(marks.depth == 0)
    segments, first = np.unique(marks.segment[closed], return_index=True)
    ends = (marks.at[closed[first]] + 1).tolist()
    return {
        segment: end - starts[segment]
        for segment, end in zip(segments.tolist(), ends, strict=True)
        if _COMMA.match(text, end)
    }


def _array_ends(text: bytes, marks: Marks, starts: list[int]) -> dict[int, _ArrayEnd]:
    """For pieces with a `]` that closes more than they open, and what follows an array behind it."""
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
    """Shape (pieces,): the depth at the end of each piece."""
    depths = np.zeros(pieces, np.int32)
    depths[marks.segment] = marks.depth  # of equal indices the last one stays
    return depths


def _joins(depth_after: Int32, bad: Int64) -> dict[int, int]:
    """For pieces that end within brackets: the later piece by whose end all of them are closed."""
    joins: dict[int, int] = {}
    if len(bad) > _MOST_BAD:
        return joins
    total = np.cumsum(depth_after)
    for i in bad[depth_after[bad] > 0].tolist():
        closed = np.flatnonzero(total[i + 1 : i + 1 + _MOST_JOINED] <= total[i] - depth_after[i])
        if len(closed):
            joins[i] = i + 1 + int(closed[0])
    return joins
