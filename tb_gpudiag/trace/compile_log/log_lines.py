"""Lines of a log of torch.compile: those of its entries that are of interest, each with its payload."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Final

# A small function leaves 200 to 400 KB for each compilation, most of it configuration and generated code.
MOST_BYTES: Final = 2 << 30
# The largest entry of interest seen takes 60 KB.
MOST_ENTRY_BYTES: Final = 8 << 20
# Each compilation has about four.
MOST_OF_INTEREST: Final = 100_000
# Output of a program in its log has fewer lines. Reading goes on no further.
MOST_MALFORMED: Final = 100_000
BLOCK_BYTES: Final = 4 << 20

# What decides whether an entry is of interest is at its start.
_NAME_BYTES: Final = 400
_LINE: Final = re.compile(rb"\n([^\t\n][^\n]*)")


@dataclass
class LogLines:
    """Reads a log. `entries` counts all of them, `malformed` the lines that are neither an entry nor its
    payload. `stopped`: reading stopped at a limit.

    is_of_interest: asked with the start of each entry.
    """

    content: IO[bytes]
    is_of_interest: Callable[[bytes], bool]
    entries: int = 0
    malformed: int = 0
    stopped: bool = False

    def of_interest(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield each entry of interest with its payload, cut off at MOST_ENTRY_BYTES. Raises OSError."""
        found, head, payload = 0, b"", b""
        for block in self._blocks():
            at = 0
            for line in _LINE.finditer(block):
                if head:
                    yield head, (payload + block[at : line.start()])[:MOST_ENTRY_BYTES]
                    found += 1
                head = line[1][:MOST_ENTRY_BYTES] if self._counts(line[1]) else b""
                payload, at = b"", line.end()
            payload = (payload + block[at:])[:MOST_ENTRY_BYTES] if head else b""
            if found > MOST_OF_INTEREST or self.malformed > MOST_MALFORMED:
                self.stopped = True
                return
        if head:
            yield head, payload

    def _counts(self, line: bytes) -> bool:
        """Count a line. Return whether it is an entry of interest."""
        if not (line[:1].isupper() and line[1:5].isdigit()):
            self.malformed += 1
            return False
        self.entries += 1
        return self.is_of_interest(line[:_NAME_BYTES])

    def _blocks(self) -> Iterator[bytes]:
        """Yield blocks of whole lines, each line behind a line feed. The end of a very long line is lost."""
        rest, left = b"", MOST_BYTES
        while block := self.content.read(min(BLOCK_BYTES, left)):
            left -= len(block)
            end = block.rfind(b"\n")
            if end >= 0:
                yield b"\n" + rest + block[:end]
                rest = block[end + 1 :]
            elif len(rest) < MOST_ENTRY_BYTES:
                rest += block
        self.stopped = not left and bool(self.content.read(1))
        if rest:
            yield b"\n" + rest
