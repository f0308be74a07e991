"""Copy a trace with more events in it. The original bytes pass through as they are: no event is parsed.

The new events come first, so that a viewer shows them even if the file ends in the middle. Only a file that
viewers would refuse is mended on the way: what is not JSON is repaired or left out, and a file that was cut
off is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from tb_gpudiag.trace.files.copying import Write
from tb_gpudiag.trace.files.file_names import refuse_uncopied
from tb_gpudiag.trace.files.source import DEFAULT_LIMITS, Limits, Source
from tb_gpudiag.trace.kineto.pieces import Salvaged, by_brackets, salvage
from tb_gpudiag.trace.kineto.plain import is_json
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
