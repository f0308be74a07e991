"""Parse JSON text into a TracePart: with the compiled scanner, or with Python's json if that cannot."""

from __future__ import annotations

from threading import Lock
from typing import Final

from tb_gpudiag.trace.kineto import scanned
from tb_gpudiag.trace.kineto.columns import part_of
from tb_gpudiag.trace.kineto.plain import read_plain
from tb_gpudiag.trace.kineto.scanned import MOST_TEXTS, GivenUp, Scanner
from tb_gpudiag.trace.trace_parts import TracePart

# A chunk of real events has fewer than 30,000.
_MOST_SCANNED: Final = 1 << 16
_LEAST_ROOM_BYTES: Final = 4 << 10
# A text of this size or more gets all the room.
_MOST_SCANNED_BYTES: Final = 8 * _MOST_SCANNED


class Parser:
    """Parser for one thread."""

    def __init__(self, columns_lock: Lock | None = None) -> None:
        """columns_lock: shared by parsers that work at the same time. Making columns is some hundred short
        NumPy calls. Two threads at it keep taking Python's lock from each other, which doubles the CPU time.
        """
        self._columns_lock = columns_lock or Lock()
        self._scans = scanned.available()
        self._scanner: Scanner | None = None
        self._room = 0

    def parse(self, text: bytes) -> TracePart | None:
        """Parse a JSON array of events. Return None if the text is not JSON."""
        fields = self._scanner_for(text).scan(text) if self._scans else None
        if fields is not None:
            try:
                with self._columns_lock:
                    return part_of(fields)
            except GivenUp:
                pass
        plain = read_plain(text)
        return None if plain is None else part_of(plain)

    def _scanner_for(self, text: bytes) -> Scanner:
        """Return a scanner with room for all events of the text: making room for thousands takes longer than
        reading some."""
        if self._scanner is None or self._room < min(len(text), _MOST_SCANNED_BYTES):
            self._room = min(max(1 << len(text).bit_length(), _LEAST_ROOM_BYTES), _MOST_SCANNED_BYTES)
            # No event is shorter than "{},", and none of the texts that the scanner numbers than '"ph":"X",'.
            most_events = min(self._room // 3, _MOST_SCANNED)
            self._scanner = Scanner(most_events, min(self._room // 8, MOST_TEXTS))
        return self._scanner
