"""An array of events as chunks, cut where whole events probably end, and verified by parsing.

A cut is made at the text `}` `,` `{`. From a place that is known to be between two events, the parser
accepts the text up to the next cut only if that too is between two events: JSON read from the left has one
meaning. So a wrong cut (within a string, within a nested array) never passes; the stretch around it is then
looked at closely (`settle`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Final

from tb_gpudiag.errors import TooLarge
from tb_gpudiag.trace.assemble import Assembly
from tb_gpudiag.trace.columns import Part
from tb_gpudiag.trace.limits import Limits
from tb_gpudiag.trace.parser import Parser
from tb_gpudiag.trace.pieces import plausible_begin
from tb_gpudiag.trace.settle import Settled, Settler
from tb_gpudiag.trace.top import Stream

# DuckDB lets go of the interpreter's lock; two workers keep two cores busy while this thread cuts.
_WORKERS: Final = 2
# Chunks under way: enough to keep the workers fed, few enough to bound memory.
_CHUNKS_AHEAD: Final = 4

_CUT: Final = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*(?=\{)")
_FIRST_LOOK_BYTES: Final = 8 << 10
# What stands between two events is shorter, so that it is found where two chunks meet.
_GAP_BYTES: Final = 1 << 10


@dataclass(frozen=True)
class _Chunk:
    text: bytes  # a JSON array: the events within brackets
    separator: bytes  # what stood between its last event and the next chunk's first
    parsing: Future[Part | None] | None  # None: not known to end after a whole event

    @property
    def raw(self) -> bytes:
        return self.text[1:-1] + self.separator


class Workers:
    """Threads that parse chunks, each with its own way into DuckDB."""

    def __init__(self, parser: Parser) -> None:
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="gpudiag-parse")
        self._parsers: SimpleQueue[Parser] = SimpleQueue()
        for _ in range(_WORKERS):
            self._parsers.put(parser.clone())

    def parse(self, text: bytes) -> Future[Part | None]:
        """Begin to parse."""
        return self._pool.submit(self._parse, text)

    def close(self) -> None:
        """Drop what has not begun, and wait for what has (a fraction of a second)."""
        self._pool.shutdown(cancel_futures=True)

    def _parse(self, text: bytes) -> Part | None:
        parser = self._parsers.get()
        try:
            return parser.parse(text)
        finally:
            self._parsers.put(parser)


class EventArray:
    """Reads one array of events off a stream into an Assembly."""

    def __init__(
        self,
        stream: Stream,
        workers: Workers,
        settler: Settler,
        assembly: Assembly,
        limits: Limits,
        path: str,
        progress: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._workers = workers
        self._settler = settler
        self._assembly = assembly
        self._limits = limits
        self._path = path
        self._progress = progress
        self._carry = b""  # read from the stream, and after the last cut
        self._ended = False  # the stream has

    def read(self) -> bool:
        """Whether the array ended: the stream is then just after it. Raises TooLarge and TooDeep."""
        chunks: deque[_Chunk] = deque()
        leftover = b""  # the beginning of an element whose end is in the next chunk
        lost = False  # within an element that is too large: waiting for the beginning of another
        while True:
            while len(chunks) < _CHUNKS_AHEAD and not (self._ended and not self._carry):
                chunks.append(self._next_chunk())
            if not chunks:
                return False
            chunk = chunks.popleft()
            self._progress()
            if not leftover and not lost and chunk.parsing is not None:
                part = chunk.parsing.result()
                if part is not None:
                    self._add(part)
                    continue
            text = leftover + chunk.raw
            if lost:
                begin = plausible_begin(text)
                if begin < 0:
                    leftover = text[-_GAP_BYTES:]
                    continue
                lost = False
                text = text[begin:]
            final = self._ended and not self._carry and not chunks
            settled = self._settler.settle(text, final)
            if len(settled.leftover) > self._limits.max_element_bytes:
                self._take(settled)
                settled = self._settler.give_up(settled.leftover)
                lost = bool(settled.leftover)
                settled = replace(settled, leftover=b"", malformed=settled.malformed + lost)
            self._take(settled)
            leftover = settled.leftover
            if settled.ended:
                self._stream.put_back(b"".join([settled.rest, *(c.raw for c in chunks), self._carry]))
                return True

    def _take(self, settled: Settled) -> None:
        self._assembly.malformed += settled.malformed
        self._assembly.mended |= settled.mended
        if settled.part is not None:
            self._add(settled.part)

    def _add(self, part: Part) -> None:
        self._assembly.add(part)
        if self._assembly.events_read > self._limits.max_events:
            raise TooLarge(
                f"it holds more than {self._limits.max_events:,} events",
                where=self._path,
                remedy="record fewer steps, or raise Limits.max_events",
            )

    def _next_chunk(self) -> _Chunk:
        pieces = [self._carry]
        size = len(self._carry)
        target = self._limits.chunk_bytes
        while True:
            while size < target and not self._ended:
                block = self._stream.next()
                self._ended = not block
                pieces.append(block)
                size += len(block)
            if self._ended:
                # The array's end is in here, or the file was cut off: the parser would refuse it as it is.
                self._carry = b""
                return _Chunk(b"".join((b"[", *pieces, b"]")), b"", None)
            text, before = pieces[-1], pieces[:-1]
            cut = _last_cut(text)
            if cut is None:
                text, before = b"".join(pieces), []
                cut = _last_cut(text)
            if cut is not None:
                self._carry = text[cut.end() :]
                end = cut.start() + 1
                body = b"".join((b"[", *before, memoryview(text)[:end], b"]"))
                return _Chunk(body, text[end : cut.end()], self._workers.parse(body))
            if size > self._limits.max_element_bytes:
                self._carry = b""
                return _Chunk(b"".join((b"[", text, b"]")), b"", None)
            pieces = [text]
            target = size + self._limits.chunk_bytes


def _last_cut(text: bytes) -> re.Match[bytes] | None:
    """The last place in `text` where an event probably ends and another begins."""
    look = _FIRST_LOOK_BYTES
    while True:
        begin = max(len(text) - look, 0)
        last = None
        for last in _CUT.finditer(text, begin):  # noqa: B007  (the last one is what is wanted)
            pass
        if last is not None or begin == 0:
            return last
        look *= 8
