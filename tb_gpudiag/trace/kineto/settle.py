"""Parse JSON text into a TracePart: with the compiled scanner, or with Python's json if that cannot.

There are three reasons why a text does not parse as it is: the array ends in it, it is cut inside an element,
or something in it is not JSON. First, scan its brackets for the end of the array and the last whole element,
and parse the text up to there. If that fails, repair the text (`repair`) and try again. If that fails too,
save the events one by one (`pieces`).
"""

from __future__ import annotations

from dataclasses import replace
from threading import Lock
from typing import Final

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.kineto import scanned
from tb_gpudiag.trace.kineto.columns import part_of
from tb_gpudiag.trace.kineto.pieces import Salvaged, by_brackets, salvage
from tb_gpudiag.trace.kineto.plain import read_plain
from tb_gpudiag.trace.kineto.scanned import MOST_TEXTS, GivenUp, Scanner
from tb_gpudiag.trace.kineto.structure import elements, repaired
from tb_gpudiag.trace.kineto.top import too_deep
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


_SPACE: Final = b" \t\r\n"


@dataclass(frozen=True, eq=False)
class Settled:
    """What was read from a text."""

    part: TracePart | None  # the whole elements
    malformed: int = 0  # elements skipped, in addition to those that `part` counts
    repaired: bool = False  # something was not JSON and could be repaired
    leftover: bytes = b""  # the start of an element that ends after the text
    ended: bool = False  # the array ends in the text
    rest: bytes = b""  # the text after the end of the array


class Settler:
    """Settles texts of one file."""

    def __init__(self, limits: Limits, path: str) -> None:
        self.limits = limits
        self.path = path
        self._parser = Parser()

    def settle(self, text: bytes, final: bool) -> Settled:
        """Settle text that starts between two elements. `final`: nothing follows it in the file.

        Raises TooDeep.
        """
        settled = self._by_structure(text, final)
        if settled is not None:
            return settled
        fixed = repaired(text)
        if fixed != text:
            settled = self._by_structure(fixed, final)
            if settled is not None:
                return replace(settled, repaired=True)
        settled = self._by_pieces(fixed, final)
        return replace(settled, repaired=text.translate(None, _SPACE) != fixed.translate(None, _SPACE))

    def give_up(self, text: bytes) -> Settled:
        """Settle text that may be one endless element. The leftover is that element, if there is one."""
        if b"{" not in text:  # no events, and perhaps millions of numbers
            return Settled(None, leftover=text)
        return self._by_pieces(repaired(text), final=False)

    def _by_structure(self, text: bytes, final: bool) -> Settled | None:
        """Settle text whose whole elements are all JSON; return None if they are not."""
        split = by_brackets(text, elements(text), self.limits, final=final)
        settled = None if split is None else self._settled(split, split.max_depth)
        return None if settled is None or settled.part is None else settled

    def _by_pieces(self, text: bytes, final: bool) -> Settled:
        """Settle text in which some elements are not JSON."""
        salvaged = salvage(text, final)
        if salvaged.max_depth > self.limits.max_depth:
            raise too_deep(self.path, self.limits)
        return self._settled(salvaged, elements(salvaged.accepted).depth)

    def _settled(self, found: Salvaged, depth: int) -> Settled:
        """Parse the elements that were found. `part` is None if they are not JSON."""
        part = self._parser.parse(b"[" + found.accepted.rstrip(_SPACE + b",") + b"]")
        if part is not None and depth > self.limits.max_depth:
            raise too_deep(self.path, self.limits)
        ended, rest = found.rest is not None, found.rest or b""
        return Settled(part, found.malformed, leftover=found.leftover, ended=ended, rest=rest)
