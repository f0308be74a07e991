"""Parse JSON text into a TracePart: with the compiled scanner, or with Python's json if that cannot."""

from __future__ import annotations

from threading import Lock
from typing import Final

from tb_gpudiag.trace.kineto import scanned
from tb_gpudiag.trace.kineto.columns import part_of
from tb_gpudiag.trace.kineto.plain import read_plain
from tb_gpudiag.trace.kineto.scanned import GivenUp, Scanner
from tb_gpudiag.trace.trace_parts import TracePart

# A chunk of real events has fewer than 30,000.
_MOST_SCANNED: Final = 1 << 16


class Parser:
    """Parser for one thread."""

    def __init__(self, columns_lock: Lock | None = None) -> None:
        """columns_lock: shared by parsers that work at the same time. Making columns is some hundred short
        NumPy calls. Two threads at it keep taking Python's lock from each other, which doubles the CPU time.
        """
        self._columns_lock = columns_lock or Lock()
        self._scanner = Scanner(_MOST_SCANNED) if scanned.available() else None

    def parse(self, text: bytes) -> TracePart | None:
        """Parse a JSON array of events. Return None if the text is not JSON."""
        fields = None if self._scanner is None else self._scanner.scan(text)
        if fields is not None:
            try:
                with self._columns_lock:
                    return part_of(fields)
            except GivenUp:
                pass
        plain = read_plain(text)
        return None if plain is None else part_of(plain)
