"""The exact way through a stretch of events that could not be parsed as it was."""

from __future__ import annotations

from dataclasses import dataclass

from tb_gpudiag.trace.columns import Parser, Part
from tb_gpudiag.trace.limits import Limits
from tb_gpudiag.trace.structure import elements
from tb_gpudiag.trace.top import too_deep


@dataclass(frozen=True)
class Settled:
    """What a stretch came to."""

    part: Part | None
    leftover: bytes = b""
    ended: bool = False
    rest: bytes = b""


class Settler:
    def __init__(self, parser: Parser, limits: Limits, path: str) -> None:
        self._parser = parser
        self._limits = limits
        self._path = path

    def settle(self, text: bytes, final: bool) -> Settled:
        found = elements(text)
        end = found.array_end if found.array_end >= 0 else found.last_end
        part = self._parser.parse(b"[" + text[:end] + b"]")
        if part is None:
            raise NotImplementedError
        if found.max_depth > self._limits.max_depth:
            raise too_deep(self._path, self._limits)
        if found.array_end >= 0:
            return Settled(part, ended=True, rest=text[end + 1 :])
        return Settled(part, leftover=text[end:].lstrip(b" \t\r\n").removeprefix(b","))
