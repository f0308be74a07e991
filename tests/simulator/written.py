"""Spans that end with a block of the code that simulates them.

Classes, not generators: most of the time of a simulation is spent here.
"""

from __future__ import annotations

from typing import Protocol

from tests.builder import HostSpan, Recording


class Host(Protocol):
    """Simulates a host in its own time, and records it."""

    now_ns: int
    recording: Recording


class Written:
    """Adds a span that ends with the block. Spans are in order of start, the outer one first."""

    __slots__ = ("_host", "_span")

    def __init__(self, host: Host, span: HostSpan) -> None:
        self._host = host
        self._span = span

    def __enter__(self) -> int | None:
        """Return the span's correlation."""
        self._host.recording.host.append(self._span)
        return self._span.correlation

    def __exit__(self, *_: object) -> None:
        self._span.end_ns = self._host.now_ns


class WrittenCall(Written):
    """Adds a call, which has a correlation."""

    __slots__ = ()

    def __enter__(self) -> int:
        correlation = super().__enter__()
        assert correlation is not None, "a call has a correlation"
        return correlation


def moved(span: HostSpan, start_ns: int, end_ns: int) -> HostSpan:
    """Return the span with other times."""
    return HostSpan(span.kind, span.name, span.thread, start_ns, end_ns, span.correlation, span.args)
