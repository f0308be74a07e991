"""Read the events of a text that does not parse as it is.

There are three reasons for that: the array ends in it, it is cut inside an element, or something in it is not
JSON. First, scan its brackets for the end of the array and the last whole element, and parse the text up to
there. If that fails, repair the text (`repair`) and try again. If that fails too, save the events one by one
(`pieces`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tb_gpudiag.trace.files.limits import Limits
from tb_gpudiag.trace.kineto.parser import Parser
from tb_gpudiag.trace.kineto.pieces import BETWEEN, broken_end, ends_array, salvage
from tb_gpudiag.trace.kineto.repair import repaired
from tb_gpudiag.trace.kineto.structure import Elements, elements
from tb_gpudiag.trace.kineto.top import too_deep
from tb_gpudiag.trace.trace_parts import TracePart

_SPACE: Final = b" \t\r\n"


@dataclass(frozen=True)
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
        found = elements(text)
        if found.array_end >= 0:
            return self._ended_array(text, found, final)
        return self._open_array(text, found, final)

    def _ended_array(self, text: bytes, found: Elements, final: bool) -> Settled | None:
        """Settle text that ends the array, by its brackets."""
        end = found.array_end
        if not ends_array(text, end):
            if text[end : end + 1] != b"]" or BETWEEN.search(text, end):
                return None  # more events follow: a stray bracket
            if not final and len(text) <= self.limits.max_element_bytes:
                return Settled(None, leftover=text)  # more text shows whether events follow
        part = self._parsed(text[:end], found)
        return None if part is None else Settled(part, ended=True, rest=text[end + 1 :])

    def _open_array(self, text: bytes, found: Elements, final: bool) -> Settled | None:
        """Settle text after which the array continues."""
        part = self._parsed(text[: found.last_end], found)
        if part is None:
            return None
        leftover = text[found.last_end :].lstrip(_SPACE).removeprefix(b",").lstrip(_SPACE)
        if BETWEEN.search(leftover) or broken_end(leftover) >= 0:
            # An unbalanced quote or bracket may have swallowed events. The depth inside it means nothing.
            return None if final else Settled(part, leftover=leftover)
        self._check_depth(found.open_depth)
        return Settled(part, leftover=leftover)

    def _parsed(self, whole_elements: bytes, found: Elements) -> TracePart | None:
        """Parse elements; return None if they are not JSON."""
        part = self._parser.parse(b"[" + whole_elements.rstrip(_SPACE + b",") + b"]")
        if part is not None:
            self._check_depth(found.depth)
        return part

    def _check_depth(self, depth: int) -> None:
        if depth > self.limits.max_depth:
            raise too_deep(self.path, self.limits)

    def _by_pieces(self, text: bytes, final: bool) -> Settled:
        """Settle text in which some elements are not JSON."""
        salvaged = salvage(text, final)
        self._check_depth(salvaged.max_depth)
        return Settled(
            self._parsed(salvaged.accepted, elements(salvaged.accepted)),
            salvaged.malformed,
            leftover=salvaged.leftover,
            ended=salvaged.rest is not None,
            rest=salvaged.rest or b"",
        )
