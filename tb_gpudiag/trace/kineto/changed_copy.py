"""Copy a trace with more events in it, whose original bytes pass through as they are: no event is parsed. Or
copy the events of a window of time alone.

The new events come first, so that a viewer shows them even if the file ends in the middle. Only a file that
viewers would refuse is mended on the way: what is not JSON is repaired or left out, and a file that was cut
off is closed.

Programs add what they like next to the events: packages, users, the environment. Only what describes the
recording is copied.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final

from tb_gpudiag.trace.credentials.removing import CredentialFilter
from tb_gpudiag.trace.files.copying import Write
from tb_gpudiag.trace.files.file_names import refuse_uncopied
from tb_gpudiag.trace.files.source import DEFAULT_LIMITS, Limits, Source
from tb_gpudiag.trace.kineto.fields import is_json
from tb_gpudiag.trace.kineto.kineto import METADATA_KEYS, TRACE_EVENTS
from tb_gpudiag.trace.kineto.pieces import Salvaged, by_brackets, salvage
from tb_gpudiag.trace.kineto.structure import elements, repaired
from tb_gpudiag.trace.kineto.top import Stream, TopLevel

Keep = Callable[[bytes], bytes]
"""Takes JSON objects with commas between them, and returns those that stay."""

_SPACE: Final = b" \t\r\n\0"
_SEPARATOR: Final = b",\n"
# What follows the events is metadata. More than this is not.
_MOST_AFTER_EVENTS_BYTES: Final = 16 << 20


def copy_with_events(
    path: str,
    events: Iterable[bytes],
    write: Write,
    *,
    mend: bool,
    limits: Limits = DEFAULT_LIMITS,
    folder: str = "",
    keep: Keep | None = None,
) -> None:
    """Write the trace at `path`, unpacked, with more events at the start of its list of events.

    events: each one JSON object. mend: the file was cut off or contains text that is not JSON.
    keep: chooses among the events of the file, with `mend`. folder: see read_trace.

    Raises TraceError if the file cannot be read, and what `write` raises.
    """
    with Source(path, limits, folder) as source:
        blocks = iter(source)
        first = next(blocks, b"")
        refuse_uncopied(first, path)
        head = _Head(chain([first], blocks), write)

        def insert(stream: Stream) -> bool:
            head.end_before(stream)
            out = _Elements(write)
            for event in events:
                out.add(event)
            if mend:
                _mend(stream, out, write, limits, bare=top.bare, keep=keep)
            else:
                _copy(stream, out, write)
            return False  # the stream has ended: nothing is left to walk

        top = TopLevel(Stream(head.blocks()), limits, path, insert)
        top.walk()


class _Head:
    """Writes what the walk to the events passes."""

    def __init__(self, blocks: Iterator[bytes], write: Write) -> None:
        self._blocks = blocks
        self._write = write
        # The last two blocks: the bracket before the events is in one of them.
        self._held: list[bytes] = []
        self._ended = False

    def blocks(self) -> Iterator[bytes]:
        for block in self._blocks:
            if not self._ended:
                self._held.append(block)
                if len(self._held) > 2:
                    self._write(self._held.pop(0))
            yield block

    def end_before(self, stream: Stream) -> None:
        """Write the rest of it: what was read, except for what the stream still contains."""
        self._ended = True
        ahead = stream.take_back()
        held = b"".join(self._held)
        self._write(held[: len(held) - len(ahead)])
        stream.put_back(ahead)


class _Elements:
    """Writes the elements of a list, with commas between them."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._begun = False

    def add(self, elements: bytes) -> None:
        """Write one element, or several with the commas between them."""
        self._write((_SEPARATOR if self._begun else b"\n") + elements)
        self._begun = True

    def continue_with(self, text: bytes) -> None:
        """Write text in which the next element begins, or in which the list ends."""
        if self._begun and text.lstrip(_SPACE)[:1] not in (b"]", b""):
            self._write(_SEPARATOR)
        self._write(text)


def _copy(stream: Stream, out: _Elements, write: Write) -> None:
    """Write the rest of the file."""
    text = b""
    while not text.strip(_SPACE) and (block := stream.next()):
        text += block
    out.continue_with(text)
    while block := stream.next():
        write(block)


def _mend(
    stream: Stream, out: _Elements, write: Write, limits: Limits, *, bare: bool, keep: Keep | None
) -> None:
    """Write the events that are JSON, close the list, and write what follows it if that is JSON."""
    rest = _mend_events(stream, out, limits, keep)
    while len(rest) <= _MOST_AFTER_EVENTS_BYTES and (block := stream.next()):
        rest += block
    whole = len(rest) <= _MOST_AFTER_EVENTS_BYTES and is_json(b'{"":[]' + rest)
    write(b"\n]" + (b"" if bare else rest if whole else b"}") + b"\n")


def _mend_events(stream: Stream, out: _Elements, limits: Limits, keep: Keep | None) -> bytes:
    """Write the events that are JSON. Return the text after them; b"" if the file ends before."""
    leftover = b""
    while True:
        block = stream.next()
        text = repaired((leftover + block).lstrip(_SPACE + b","))
        # An unbalanced quote may have swallowed the events after it.
        endless = len(text) > limits.max_element_bytes
        by_structure = None if endless else _by_structure(text, limits, final=not block)
        settled = by_structure or salvage(text, not block)
        accepted = settled.accepted.strip(_SPACE + b",")
        if accepted and keep is not None:
            accepted = keep(accepted)
        if accepted:
            out.add(accepted)
        if settled.rest is not None:
            return settled.rest
        if not block:
            return b""
        leftover = settled.leftover
        if len(leftover) > limits.max_element_bytes:
            leftover = b""


def _by_structure(text: bytes, limits: Limits, *, final: bool) -> Salvaged | None:
    """Return the elements of a text that are all JSON; None if they are not."""
    found = by_brackets(text, elements(text), limits, final=final)
    return found if found is not None and is_json(b"[" + found.accepted + b"]") else None


_KEPT_KEYS: Final = METADATA_KEYS - {"host_name"}
_IN_MEMORY_BYTES: Final = 16 << 20
_PIECE_BYTES: Final = 1 << 20
_METADATA: Final = "M"
_BETWEEN_EVENTS: Final = " \t\r\n,"


class _InWindow:
    """Writes what overlaps the window, up to so many events, and the names of processes and threads."""

    def __init__(self, start_ns: int, end_ns: int, most: int, write: Write) -> None:
        self._write = write
        self._begun = False
        self._start_us, self._end_us = start_ns / 1000, end_ns / 1000
        self._room = most
        self._decoder = json.JSONDecoder()
        self.left_out = 0

    def __call__(self, elements: bytes) -> bytes:
        """Take elements of the list of events. Return none: they are written elsewhere."""
        text, at = elements.decode("utf-8", "replace"), 0
        kept = []
        while at < len(text):
            event, end = self._decoder.raw_decode(text, at)
            if self._stays(event):
                kept.append(text[at:end])  # as it is: numbers of nanoseconds have more digits than a float
            at = end
            while at < len(text) and text[at] in _BETWEEN_EVENTS:
                at += 1
        if kept:
            self._write(((",\n" if self._begun else "") + ",\n".join(kept)).encode("utf-8"))
            self._begun = True
        return b""

    def _stays(self, event: Any) -> bool:
        if not isinstance(event, dict):
            return False
        if event.get("ph") != _METADATA and not self._overlaps(event):
            return False
        if self._room == 0:
            self.left_out += 1
            return False
        self._room -= 1
        return True

    def _overlaps(self, event: dict[str, Any]) -> bool:
        start = event.get("ts")
        duration = event.get("dur", 0)
        if not isinstance(start, int | float) or not isinstance(duration, int | float):
            return False
        return start <= self._end_us and start + duration >= self._start_us


def copy_window(
    path: str, start_ns: int, end_ns: int, write: Write, *, most_events: int, folder: str = ""
) -> int:
    """Write the events that overlap a window of the file's time, and return how many did not fit.

    folder: see read_trace. Raises TraceError if the file cannot be read.
    """
    around = io.BytesIO()
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as events:
        window = _InWindow(start_ns, end_ns, most_events, events.write)
        copy_with_events(path, (), around.write, mend=True, folder=folder, keep=window)
        events.seek(0)
        found = CredentialFilter()
        write(found.feed(_before_events(around.getvalue())))
        while piece := events.read(_PIECE_BYTES):
            write(found.feed(piece))
        write(found.feed(b"\n]}\n") + found.end())
    return window.left_out


def _before_events(around: bytes) -> bytes:
    """The start of the excerpt: what a file without its events says about the recording."""
    try:
        top = json.loads(around)
    except (ValueError, RecursionError):
        top = {}  # mending is for events only
    kept = {key: top[key] for key in sorted(_KEPT_KEYS & top.keys())} if isinstance(top, dict) else {}
    return json.dumps({**kept, TRACE_EVENTS: []}).removesuffix("]}").encode("utf-8") + b"\n"
