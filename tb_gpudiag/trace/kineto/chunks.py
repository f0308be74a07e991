"""Cut an array of events into chunks, parse them in parallel, and check every cut by parsing.

A cut is made at the text `}` `,` `{`. If a chunk starts between two events, the parser accepts it only if it
also ends between two events, because JSON read from the left has one meaning. So a wrong cut (inside a string
or a nested array) never goes unnoticed. `settle` then works through the text around it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from threading import Lock
from typing import Final

import numpy as np

from tb_gpudiag.errors import TooLarge
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.assemble import Assembly
from tb_gpudiag.trace.kineto.pieces import BETWEEN
from tb_gpudiag.trace.kineto.settle import Parser, Settled, Settler
from tb_gpudiag.trace.kineto.structure import BracketScanner
from tb_gpudiag.trace.kineto.top import Stream
from tb_gpudiag.trace.trace_parts import TracePart
from tb_gpudiag.vocabulary.patterns import lazy_re

# The scanner releases Python's lock: two workers keep two cores busy while this thread cuts.
_WORKERS: Final = 2
# Enough chunks to keep the workers busy, few enough to bound memory.
_CHUNKS_AHEAD: Final = 4

_CUT: Final = lazy_re(rb"\}[ \t\r\n]*,[ \t\r\n]*(?=\{)")
# Probably: a list of objects in an event also ends like this.
_ARRAY_END: Final = lazy_re(rb"\}[ \t\r\n]*\][ \t\r\n]*(?:\}|,[ \t\r\n]*\")")
_AFTER_ELEMENT: Final = lazy_re(rb"\A[ \t\r\n]*,")
_BEFORE_REST: Final = lazy_re(rb"\A[ \t\r\n]*\]")
_BRACE: Final = ord("{")
_FIRST_LOOK_BYTES: Final = 8 << 10
# The text between two events is shorter. Keeping this much finds it across the border of two chunks.
_GAP_BYTES: Final = 1 << 10


@dataclass(frozen=True, eq=False)
class _Chunk:
    text: bytes  # a JSON array: the events within brackets
    separator: bytes  # the text between its last event and the next chunk's first
    parsing: Future[TracePart | None] | None  # None if it may not end after a whole event
    last: bool = False  # if it parses, the array's end follows

    @property
    def raw(self) -> bytes:
        """The text as it is in the file."""
        return self.text[1:-1] + self.separator


class Workers:
    """Threads that parse chunks, each with its own parser."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="gpudiag-parse")
        self._parsers: SimpleQueue[Parser] = SimpleQueue()
        columns_lock = Lock()
        for _ in range(_WORKERS):
            self._parsers.put(Parser(columns_lock))

    def parse(self, text: bytes) -> Future[TracePart | None]:
        """Parse a JSON array of events in another thread; the result is None if it is not JSON."""
        return self._pool.submit(self._parse, text)

    def parse_here(self, text: bytes) -> Future[TracePart | None]:
        """Parse as `parse` does, but in this thread, which has nothing else to do."""
        parsed: Future[TracePart | None] = Future()
        parsed.set_result(self._parse(text))
        return parsed

    def close(self) -> None:
        """Drop the chunks that nobody is parsing yet, and wait for the others (a fraction of a second)."""
        self._pool.shutdown(cancel_futures=True)

    def _parse(self, text: bytes) -> TracePart | None:
        parser = self._parsers.get()
        try:
            return parser.parse(text)
        finally:
            self._parsers.put(parser)


class _Skipped:
    """An element that is too large to be read. Only what shows its end is kept of it."""

    def __init__(self, text: bytes) -> None:
        self._scanner = BracketScanner()
        self._scanner.skip_element(text)
        self._tail = text[-_GAP_BYTES:]

    def text_after(self, text: bytes) -> bytes | None:
        """Return the part of the next text that follows the element; None if it does not end in there."""
        end = self._scanner.skip_element(text)
        text, end = self._tail + text, len(self._tail) + end if end >= 0 else -1
        # If the element is broken, its quotes and brackets mean nothing, but the start of an event does.
        event = BETWEEN.search(text)
        if event is not None and not 0 <= end < event.end():
            end = event.end()
        self._tail = text[-_GAP_BYTES:]
        return text[end:] if end >= 0 else None


class EventArray:
    """Reads one array of events from a stream into an Assembly."""

    def __init__(
        self,
        stream: Stream,
        workers: Workers,
        settler: Settler,
        assembly: Assembly,
        progress: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._workers = workers
        self._settler = settler
        self._assembly = assembly
        self._limits = settler.limits
        self._progress = progress
        self._chunks: deque[_Chunk] = deque()  # being parsed, in file order
        self._carry = b""  # text after the last cut
        self._stream_ended = False
        self._past_end = False  # what is left follows what looked like the array's end: one try is enough
        self._leftover = b""  # start of an element that ends in a later chunk
        self._skipped: _Skipped | None = None  # an element that is too large: look for the next one

    def read(self) -> bool:
        """Read up to the end of the array and leave the stream just after it.

        Return False if the file ends before the array does. Raises TooLarge and TooDeep.
        """
        while (chunk := self._next_chunk()) is not None:
            self._progress()
            if self._add_parsed(chunk):
                if chunk.last:
                    self._stream.put_back(_BEFORE_REST.sub(b"", self._unread(), count=1))
                    return True
                continue
            text = self._text_to_settle(chunk)
            if text is None:
                continue
            settled = self._settle(text)
            if settled.ended:
                self._stream.put_back(settled.rest + self._unread())
                return True
        return False

    def _unread(self) -> bytes:
        return b"".join([*(queued.raw for queued in self._chunks), self._carry])

    def _next_chunk(self) -> _Chunk | None:
        """Return the next chunk, and cut the ones after it so that they are parsed meanwhile."""
        while len(self._chunks) < _CHUNKS_AHEAD and (self._carry or not self._stream_ended):
            self._chunks.append(self._cut_chunk())
        return self._chunks.popleft() if self._chunks else None

    def _add_parsed(self, chunk: _Chunk) -> bool:
        """Add the chunk if it starts and ends between two events. Return False if it has to be settled."""
        if self._leftover or self._skipped or chunk.parsing is None:
            return False
        part = chunk.parsing.result()
        if part is None:
            return False
        self._add(part)
        return True

    def _text_to_settle(self, chunk: _Chunk) -> bytes | None:
        """Return what is not settled yet, up to the end of the chunk; None if all of it is to be skipped."""
        if self._skipped is None:
            # Without a leftover, the last element has ended. The comma after it may be in this chunk.
            return self._leftover + chunk.raw if self._leftover else _AFTER_ELEMENT.sub(b"", chunk.raw)
        text = self._skipped.text_after(chunk.raw)
        if text is not None:
            self._skipped = None
        return text

    def _settle(self, text: bytes) -> Settled:
        final = self._stream_ended and not self._carry and not self._chunks
        settled = self._settler.settle(text, final)
        if self._weight(settled.leftover) > self._limits.max_element_bytes:
            self._take(settled)
            settled = self._settler.give_up(settled.leftover)
            # The last piece alone may be an event as usual, after broken ones whose brackets ran on.
            if self._weight(settled.leftover) > self._limits.max_element_bytes:
                self._skipped = _Skipped(settled.leftover)
                settled = replace(settled, leftover=b"", malformed=settled.malformed + 1)
        self._take(settled)
        self._leftover = settled.leftover
        return settled

    def _take(self, settled: Settled) -> None:
        self._assembly.malformed += settled.malformed
        self._assembly.repaired |= settled.repaired
        if settled.part is not None:
            self._add(settled.part)

    def _add(self, part: TracePart) -> None:
        self._assembly.add(part)
        if self._assembly.events_read > self._limits.max_events:
            raise TooLarge(
                f"it has more than {self._limits.max_events:,} events",
                where=self._settler.path,
                remedy="record fewer steps, or raise Limits.max_events",
            )

    def _cut_chunk(self) -> _Chunk:
        """Read about `chunk_bytes` from the stream, cut after the last whole event, and parse that part."""
        pieces = [self._carry]
        size = len(self._carry)
        target = self._limits.chunk_bytes
        weight = self._weight(self._carry)
        while True:
            while weight < target and not self._stream_ended:
                block, weight_of_block = self._light_block()
                self._stream_ended = not block
                pieces.append(block)
                size += len(block)
                weight += weight_of_block
            if self._stream_ended:
                return self._last_chunk(b"".join(pieces))
            text, before = pieces[-1], pieces[:-1]
            cut = _last_cut(text)
            if cut is None:
                text, before = b"".join(pieces), []
                cut = _last_cut(text)
            if cut is not None:
                return self._chunk(before, text, cut)
            if size > self._limits.max_element_bytes or weight > 2 * size:
                self._carry = b""
                return _Chunk(b"".join((b"[", text, b"]")), b"", None)
            pieces = [text]
            target = weight + self._limits.chunk_bytes

    def _last_chunk(self, text: bytes) -> _Chunk:
        """Cut the last text at the array's end, or before its last event if the file is cut off. The next
        call gets the rest, which does not parse as it is."""
        if self._past_end:
            self._carry = b""
            return _Chunk(b"".join((b"[", text, b"]")), b"", None)
        end = _ARRAY_END.search(text)
        if end is not None:
            self._past_end = True
            self._carry = text[end.start() + 1 :]
            body = b"".join((b"[", memoryview(text)[: end.start() + 1], b"]"))
            parse = self._workers.parse if self._chunks else self._workers.parse_here
            return _Chunk(body, b"", parse(body), last=True)
        cut = _last_cut(text)
        if cut is not None:
            return self._chunk([], text, cut)
        self._carry = b""
        return _Chunk(b"".join((b"[", text, b"]")), b"", None)

    def _chunk(self, before: list[bytes], text: bytes, cut: re.Match[bytes]) -> _Chunk:
        """Parse what precedes the cut in `text`, and what precedes that."""
        self._carry = text[cut.end() :]
        end = cut.start() + 1
        body = b"".join((b"[", *before, memoryview(text)[:end], b"]"))
        return _Chunk(body, text[end : cut.end()], self._workers.parse(body))

    def _light_block(self) -> tuple[bytes, int]:
        """Return the next block of the stream, or its first part if it has too many events for one chunk; and
        its weight."""
        block = self._stream.next()
        weight = self._weight(block)
        parts = -(-weight // self._limits.chunk_bytes)
        if parts > 1 and _GAP_BYTES < len(block) <= weight // 2:
            step = -(-len(block) // parts)
            for start in reversed(range(step, len(block), step)):
                self._stream.put_back(block[start : start + step])
            block = block[:step]
            weight = self._weight(block)
        return block, weight

    def _weight(self, text: bytes) -> int:
        """Return how long the text counts as: parsing takes memory for each event, however short."""
        # Not text.count: where braces are many, that takes three times as long.
        braces = int(np.count_nonzero(np.frombuffer(text, np.uint8) == _BRACE))
        return max(len(text), braces * self._limits.least_event_bytes)


def _last_cut(text: bytes) -> re.Match[bytes] | None:
    """Find the last place in `text` where an event probably ends and another begins."""
    end = len(text)
    look = _FIRST_LOOK_BYTES
    while True:
        begin = max(end - look, 0)
        last = None
        for last in _CUT.finditer(text, begin, end):  # noqa: B007  (only the last match is needed)
            pass
        if last is not None or begin == 0:
            return last
        look *= 8
