"""Find the brackets and strings of JSON with NumPy, in texts that do not parse as they are, and repair
what some writers get wrong.

Only text that JSON does not allow is changed. So valid text stays the same except for white space, and
repairing text twice is the same as repairing it once.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import Bool, Int32, Int64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.patterns import lazy_re

_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_COMMA: Final = ord(",")
_CLOSING: Final = ord("]")
_STEP: Final = np.zeros(256, np.int8)
_STEP[[ord("{"), ord("[")]] = 1
_STEP[[ord("}"), ord("]")]] = -1

# In the worst case, positions take several times the memory of the text. Scanning in blocks bounds that.
_SCAN_BYTES: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class Marks:
    """Brackets outside strings, in text order. All arrays have shape (n,)."""

    at: Int64  # byte positions
    depth: Int32  # after the bracket
    segment: Int64  # number of the segment that it is in


def unescaped_quotes(codes: npt.NDArray[np.uint8], escaped: bool = False) -> tuple[Int64, bool]:
    """Find the quotes that start or end strings. Return their positions and if the next byte is escaped.

    `escaped`: the first byte is escaped. A backslash outside a string is not JSON, so its effect does not
    matter.
    """
    quotes = np.flatnonzero(codes == _QUOTE)
    slashes = np.flatnonzero(codes == _BACKSLASH)
    if escaped and len(codes) and codes[0] == _BACKSLASH:
        slashes = slashes[1:]
    if not len(slashes):
        if escaped and len(quotes) and quotes[0] == 0:
            quotes = quotes[1:]
        return quotes, escaped and not len(codes)
    run_end, length = runs(slashes)
    escapes = run_end[length % 2 == 1]  # the last backslash of an odd run escapes the next byte
    hidden = escapes + 1
    if escaped:
        hidden = np.concatenate([[0], hidden])
    quotes = quotes[~np.isin(quotes, hidden, assume_unique=True)]
    return quotes, bool(len(escapes)) and int(escapes[-1]) == len(codes) - 1


def runs(positions: Int64) -> tuple[Int64, Int64]:
    """Find runs of adjacent positions. Return the last position and the length of each."""
    last = np.flatnonzero(np.append(np.diff(positions) != 1, True))
    return positions[last], np.diff(last, prepend=-1)


def segmented(text: bytes, starts: Int64) -> Marks:
    """Marks of text cut at `starts` (ascending, the first is 0).

    Every segment is read as if it started at depth 0, outside a string.
    """
    codes = np.frombuffer(text, np.uint8)
    quotes, _ = unescaped_quotes(codes)
    step = _STEP[codes]
    at = np.flatnonzero(step)
    segment = np.searchsorted(starts, at, side="right") - 1
    outside = (np.searchsorted(quotes, at) - np.searchsorted(quotes, starts)[segment]) % 2 == 0
    at, segment = at[outside], segment[outside]
    total = np.cumsum(step[at], dtype=np.int32)
    before = np.concatenate([np.zeros(1, np.int32), total])[np.searchsorted(at, starts)]
    return Marks(at, total - before[segment], segment)


@dataclass(frozen=True, eq=False)
class Scan:
    """What a BracketScanner found in a piece of text: positions in that piece, in text order."""

    at: Int64  # brackets outside strings, shape (n,)
    depth: Int32  # after each bracket, shape (n,)
    _depth_before: int  # at the start of the piece
    _in_string: bool  # at the start of the piece
    _codes: npt.NDArray[np.uint8]
    _quotes: Int64  # that start or end strings

    def top_commas(self) -> Int64:
        """Positions of the commas at depth 0 outside strings, shape (m,)."""
        commas: Int64 = np.flatnonzero(self._codes == _COMMA)
        depths = np.concatenate([np.array([self._depth_before], np.int32), self.depth])
        commas = commas[depths[np.searchsorted(self.at, commas)] == 0]
        outside: Bool = (np.searchsorted(self._quotes, commas) + self._in_string) % 2 == 0
        return commas[outside]


class BracketScanner:
    """Scans text piece by piece and keeps the depth and string state in between."""

    def __init__(self) -> None:
        self.depth = 0
        self.in_string = False
        self._escaped = False

    def feed(self, text: bytes) -> Scan:
        """Scan the next piece."""
        depth_before, in_string = self.depth, self.in_string
        codes = np.frombuffer(text, np.uint8)
        quotes, self._escaped = unescaped_quotes(codes, self._escaped)
        step = _STEP[codes]
        at = np.flatnonzero(step)
        if len(quotes) or self.in_string:
            at = at[(np.searchsorted(quotes, at) + self.in_string) % 2 == 0]
        depth = self.depth + np.cumsum(step[at], dtype=np.int32)
        self.in_string = (len(quotes) + self.in_string) % 2 == 1
        if len(depth):
            self.depth = int(depth[-1])
        return Scan(at, depth, depth_before, in_string, codes, quotes)

    def skip_element(self, text: bytes) -> int:
        """Scan text that continues an element of an array, and find where the element ends.

        Return the position just after the comma that follows it, or of the bracket that closes the array.
        Return -1 if the element does not end in this text.
        """
        found = -1
        for offset in range(0, len(text), _SCAN_BYTES):
            block = text[offset : offset + _SCAN_BYTES]
            scan = self.feed(block)
            below = scan.at[scan.depth == -1]
            ends = [*(scan.top_commas()[:1] + 1), *(at for at in below[:1] if block[at] == _CLOSING)]
            if ends and found < 0:
                found = offset + int(min(ends))
        return found


@dataclass(frozen=True)
class Elements:
    """What brackets say about the elements of an array."""

    last_end: int  # just after the last element that has ended: a bracket or a comma shows that
    array_end: int  # position of the bracket that closes the array, or -1
    depth: int  # greatest depth of the elements that have ended
    open_depth: int  # greatest depth of the one that has not


def elements(text: bytes) -> Elements:
    """Scan the inside of an array, from just after its `[` or from between two of its elements."""
    scanner = BracketScanner()
    last_end = depth = open_depth = 0
    array_end = -1
    for offset in range(0, len(text), _SCAN_BYTES):
        scan = scanner.feed(text[offset : offset + _SCAN_BYTES])
        between = scan.top_commas()
        below = np.flatnonzero(scan.depth < 0)
        stop = int(below[0]) if len(below) else len(scan.depth)
        # Only a closing bracket reaches depth 0: an element opens to 1.
        closed = np.flatnonzero(scan.depth[:stop] == 0)
        if len(closed):
            last = int(closed[-1])
            last_end = offset + int(scan.at[last]) + 1
            depth = max(depth, open_depth, int(scan.depth[:last].max(initial=0)))
            open_depth = int(scan.depth[last:stop].max(initial=0))
        else:
            open_depth = max(open_depth, int(scan.depth[:stop].max(initial=0)))
        if len(below):
            between = between[between < scan.at[stop]]
        if len(between):
            last_end = max(last_end, offset + int(between[-1]))
        if len(below):
            array_end = offset + int(scan.at[stop])
            break
    return Elements(last_end, array_end, depth, open_depth)


_CONTROL_TO_SPACE: Final = bytes(ord(" ") if code < 0x20 else code for code in range(256))
_NOT_AVAILABLE: Final = lazy_re(rb'(?i)("[ ]*:[ ]*)(?:N/A|-?(?:nan|inf(?:inity)?))(?=[ ]*[,}])')
_MAYBE_NOT_AVAILABLE: Final = lazy_re(rb"(?i):[ ]*-?[ni][/an]")
_SURROGATE: Final = lazy_re(rb"\\u[dD][89a-fA-F]")
# All escapes in turn: a pair of surrogates, a lone one, and any other.
_ESCAPE: Final = lazy_re(
    rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_HEX: Final = np.zeros(256, np.bool_)
_HEX[list(b"0123456789abcdefABCDEF")] = True
_ESCAPABLE: Final = np.zeros(256, np.bool_)
_ESCAPABLE[list(b'"\\/bfnrtu')] = True


def repaired(text: bytes) -> bytes:
    """Repair text of JSON.

    Control characters become spaces, bare backslashes are doubled, `N/A`, `nan` and `inf` become null, broken
    UTF-8 and lone surrogates become U+FFFD. An incomplete UTF-8 sequence or escape at the very end stays: its
    rest may follow.
    """
    text = text.translate(_CONTROL_TO_SPACE)
    text = _utf8(text)
    if b"\\" in text:
        text = _escapes(text)
    if _MAYBE_NOT_AVAILABLE.search(text):
        text = _NOT_AVAILABLE.sub(rb"\1null", text)
    return text


def _utf8(text: bytes) -> bytes:
    try:
        text.decode()
        return text
    except UnicodeDecodeError:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return decoder.decode(text).encode() + decoder.getstate()[0]


def _escapes(text: bytes) -> bytes:
    codes = np.frombuffer(text, np.uint8)
    last, length = runs(np.flatnonzero(codes == ord("\\")))
    last = last[(length % 2 == 1) & (last < len(codes) - 1)]  # an even run escapes itself
    following = codes[last + 1]
    bare = ~_ESCAPABLE[following]
    unicode = np.flatnonzero(following == ord("u"))
    digits = last[unicode, None] + np.arange(2, 6)
    inside = digits < len(codes)
    bare[unicode] = ~(_HEX[codes[np.minimum(digits, len(codes) - 1)]] | ~inside).all(axis=1)
    if bare.any():
        text = np.insert(codes, last[bare], ord("\\")).tobytes()
    if _SURROGATE.search(text):
        text = _ESCAPE.sub(lambda escape: rb"\ufffd" if escape["lone"] else escape[0], text)
    return text


def has_lone_surrogate(text: bytes) -> bool:
    """Return whether a string has half of an escaped pair of surrogates: not Unicode, and so not JSON."""
    if not _SURROGATE.search(text):
        return False
    return any(escape["lone"] for escape in _ESCAPE.finditer(text))
