"""Read the top level of a file: an object with `traceEvents` anywhere in it, or the bare array of events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from tb_gpudiag.errors import NotATrace, TooDeep
from tb_gpudiag.trace.credentials.removing import without_credentials
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.kineto import kineto
from tb_gpudiag.trace.kineto.structure import BracketScanner, repaired, unescaped_quotes
from tb_gpudiag.vocabulary.patterns import lazy_re

_SPACE: Final = lazy_re(rb"[ \t\r\n\x00,]*")
_SCALAR: Final = lazy_re(rb"[^\s,:{}\[\]\"]*")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
# Keys are names. A trace has no key longer than this.
_MAX_KEY_BYTES: Final = 64 << 10
# A trace has about ten, and about a hundred with the keys a user adds.
_MAX_KEYS: Final = 1000
# Only a file put together by hand has a second list of events.
_MAX_EVENT_ARRAYS: Final = 4
# Values are scanned in pieces that start at this size and grow: most are small, some are megabytes.
_FIRST_LOOK_BYTES: Final = 4 << 10
_MAX_LINE_BYTES: Final = 1 << 20
_NOT_JSON: Final = "it is not JSON"
_BARE_QUOTE: Final = (
    "a value of the metadata has a quotation mark that torch did not escape (add_metadata): it was skipped; "
    "other programs do not read such a file"
)
_NO_EVENTS: Final = "it is JSON without trace events"


class Stream:
    """Blocks of text that can be put back."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._returned: list[bytes] = []

    def next(self) -> bytes:
        """The next block; empty at the end."""
        if self._returned:
            return self._returned.pop()
        for block in self._blocks:
            if block:
                return block
        return b""

    def put_back(self, text: bytes) -> None:
        """Make text the next block."""
        if text:
            self._returned.append(text)

    def take_back(self) -> bytes:
        """Take all text that was put back; empty if nothing was."""
        text = b"".join(reversed(self._returned))
        self._returned.clear()
        return text


class _Ended(Exception):
    """The text ends in the middle."""


class TopLevel:
    """Walks the top level of a file.

    `walk` sets `values` (top-level values that are kept, by key), `event_arrays` (number of arrays of
    events), `bare`, `whole`, `cut_off` and `notes`.
    """

    def __init__(
        self, stream: Stream, limits: Limits, path: str, read_events: Callable[[Stream], bool]
    ) -> None:
        """`read_events` takes the stream just inside an array of events and leaves it just after the array.

        It returns False if the file ends before the array does.
        """
        self.values: dict[str, Any] = {}
        self.event_arrays = 0
        self.bare = False  # the file is an array of events, without an object around it
        self.whole = False  # the JSON ends as it should
        self.cut_off = False  # the file ends before that
        self.notes: list[str] = []
        self._stream = stream
        self._limits = limits
        self._path = path
        self._read_events = read_events
        self._text = b""
        self._at = 0

    def walk(self) -> None:
        """Read the whole file. Raises NotATrace and TooDeep."""
        try:
            self.whole = self._walk()
        except _Ended:
            if not self.event_arrays:
                what = _NOT_JSON if self.notes else "it ends before the first trace event"
                raise self._not_a_trace(what) from None
            self.cut_off = True

    def _walk(self) -> bool:
        """Return whether the JSON ends as it should."""
        self._fill()
        if self._text.startswith(_BYTE_ORDER_MARK):
            self._at = len(_BYTE_ORDER_MARK)
        opening = self._next_byte()
        if opening == b"[":
            self.bare = True
            self._events()
            return True
        if opening != b"{":
            raise self._not_a_trace(_NOT_JSON)
        self._at += 1
        whole = self._entries()
        if not self.event_arrays:
            raise self._not_a_trace(_NO_EVENTS)
        return whole

    def _entries(self) -> bool:
        """Read all entries of the object. Return False if something else comes before its closing brace."""
        keys = 0
        while (opening := self._next_byte()) != b"}":
            if keys == _MAX_KEYS:
                return self._stop(_NO_EVENTS)
            if opening == b'"':
                self._entry()
            elif self.event_arrays or not keys or not self._skip_line():
                return self._stop(_NOT_JSON)
            keys += 1
        return True

    def _skip_line(self) -> bool:
        """Pass over the rest of a line. Return False if it is longer than any.

        torch does not escape quotation marks in what a job adds to the metadata, and writes an entry a line.
        """
        if _BARE_QUOTE not in self.notes:
            self.notes.append(_BARE_QUOTE)
        while (end := self._text.find(b"\n", self._at)) < 0:
            if len(self._text) - self._at > _MAX_LINE_BYTES:
                return False
            self._fill()
        self._at = end + 1
        return True

    def _entry(self) -> None:
        key = self._key()
        if self._next_byte() == b":":
            self._at += 1
        elif not self.event_arrays and self._skip_line():
            return
        is_events = key == kineto.TRACE_EVENTS and self._next_byte() == b"["
        if is_events and self.event_arrays < _MAX_EVENT_ARRAYS:
            self._events()
        else:
            self._value(key)

    def _stop(self, what: str) -> bool:
        """Leave the rest of the file unread. Without events so far, raise NotATrace: `what` is wrong."""
        if not self.event_arrays:
            raise self._not_a_trace(what)
        self.notes.append("the text after the trace events does not belong to a trace and was skipped")
        return False

    def _events(self) -> None:
        """Read the array that starts at the next byte."""
        self._at += 1
        self.event_arrays += 1
        if self.event_arrays == 2:
            self.notes.append(
                f"the file has more than one list of trace events: the first {_MAX_EVENT_ARRAYS} are read"
            )
        self._stream.put_back(self._text[self._at :])
        self._text, self._at = b"", 0
        if not self._read_events(self._stream):
            raise _Ended

    def _key(self) -> str:
        text = self._string(_MAX_KEY_BYTES)
        return str(_loaded(text) or "") if text is not None else ""

    def _value(self, key: str) -> None:
        opening = self._next_byte()
        keep = self._limits.max_metadata_bytes if key in kineto.METADATA_KEYS else 0
        if opening == b'"':
            text = self._string(keep)
        elif opening in (b"{", b"["):
            text = self._nested(keep)
        else:
            text = self._scalar()
            if not text and self._next_byte() != b"}":
                self._at += 1  # pass over a stray character
        if not keep:
            return
        value = _loaded(without_credentials(text)) if text is not None else None
        if value is None and text != b"null":
            self.notes.append(f"the value of {key} could not be read")
        else:
            self.values[key] = value

    def _string(self, keep: int) -> bytes | None:
        """Pass over a string. Return its text if that has at most `keep` bytes."""
        escaped = False
        seen = 0

        def end_in(piece: bytes) -> int:
            nonlocal escaped, seen
            quotes, escaped = unescaped_quotes(np.frombuffer(piece, np.uint8), escaped)
            need, seen = 2 - seen, seen + len(quotes)
            return int(quotes[need - 1]) + 1 if len(quotes) >= need else 0

        return self._pass_over(end_in, keep)

    def _nested(self, keep: int) -> bytes | None:
        """Pass over an object or array. Return its text if that has at most `keep` bytes."""
        scanner = BracketScanner()

        def end_in(piece: bytes) -> int:
            marks = scanner.feed(piece)
            closed = np.flatnonzero(marks.depth == 0)
            inside = marks.depth[: closed[0]] if len(closed) else marks.depth
            if len(inside) and int(inside.max()) > self._limits.max_depth:
                raise too_deep(self._path, self._limits)
            return int(marks.at[closed[0]]) + 1 if len(closed) else 0

        return self._pass_over(end_in, keep)

    def _pass_over(self, end_in: Callable[[bytes], int], keep: int) -> bytes | None:
        """Pass over a value. Return its text if that has at most `keep` bytes.

        `end_in` takes the text piece by piece and returns the position just after the end of the value, or 0
        if the value does not end in this piece.
        """
        kept: list[bytes] = []
        size = 0
        look = _FIRST_LOOK_BYTES
        while True:
            if self._at >= len(self._text):
                self._fill()
            piece = self._text[self._at : self._at + look]
            end = end_in(piece)
            taken = end or len(piece)
            self._at += taken
            size += taken
            if size <= keep:
                kept.append(piece[:taken])
            if end:
                return b"".join(kept) if size <= keep else None
            look = min(4 * look, self._limits.chunk_bytes)

    def _scalar(self) -> bytes:
        match = _SCALAR.match(self._text, self._at)
        while (
            match is not None and match.end() == len(self._text) and match.end() - self._at < _MAX_KEY_BYTES
        ):
            self._fill()
            match = _SCALAR.match(self._text, self._at)
        text = match.group() if match is not None else b""
        self._at += len(text)
        return text

    def _next_byte(self) -> bytes:
        """Skip white space and commas, and return the next byte without passing it."""
        while True:
            match = _SPACE.match(self._text, self._at)
            self._at = match.end() if match is not None else self._at
            if self._at < len(self._text):
                return self._text[self._at : self._at + 1]
            self._fill()

    def _fill(self) -> None:
        block = self._stream.next()
        if not block:
            raise _Ended
        self._text = self._text[self._at :] + block
        self._at = 0

    def _not_a_trace(self, what: str) -> NotATrace:
        return NotATrace(
            what,
            where=self._path,
            remedy="the file is damaged, or not a torch.profiler trace: delete it or record again",
        )


def too_deep(path: str, limits: Limits) -> TooDeep:
    """Return the error for a file that nests deeper than the limit."""
    return TooDeep(
        f"its JSON is nested more than {limits.max_depth} levels deep: no trace is",
        where=path,
        remedy="check where the file comes from, or raise Limits.max_depth",
    )


def _loaded(text: bytes) -> Any:
    for candidate in (text, repaired(text)):
        try:
            return json.loads(candidate.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
    return None
