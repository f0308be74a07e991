"""Recording: what happened, in whole nanoseconds, independent of any generation of the format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

HostKind = Literal["op", "annotation", "frame", "runtime", "driver"]
GpuKind = Literal["kernel", "memcpy", "memset", "annotation"]


# Not frozen: making a frozen one takes four times as long, and a simulated trace has tens of thousands.
@dataclass(slots=True)
class HostSpan:
    """A span of a host thread. `correlation` links a call with the GPU work that it launched."""

    kind: HostKind
    name: str
    thread: int
    start_ns: int
    end_ns: int
    correlation: int | None = None
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class GpuSpan:
    """A span of a device's stream. Work without `correlation` has no launch in the trace."""

    kind: GpuKind
    name: str
    device: int
    stream: int
    start_ns: int
    end_ns: int
    correlation: int | None = None
    bytes: int | None = None
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class MemoryEvent:
    """One allocation (`bytes` > 0) or free (< 0). `device` None is the CPU."""

    thread: int
    time_ns: int
    bytes: int
    address: int
    device: int | None = 0
    reserved: int | None = None  # the allocator's total after it; None: unchanged


@dataclass(frozen=True)
class DeviceProperties:
    """A GPU as a trace's `deviceProperties` describes it."""

    name: str = "Test GPU"
    total_bytes: int = 16 * 2**30
    multiprocessors: int = 80
    compute_major: int = 8
    compute_minor: int = 0


@dataclass
class Recording:
    """Everything in one profiled window. Times are nanoseconds from its start."""

    host: list[HostSpan] = field(default_factory=list)
    gpu: list[GpuSpan] = field(default_factory=list)
    memory: list[MemoryEvent] = field(default_factory=list)
    memory_start: dict[int | None, int] = field(default_factory=dict)  # device -> allocated before it
    reserved_start: int = 0  # by each GPU's allocator before it
    overhead: list[tuple[str, int, int]] = field(default_factory=list)  # name, start_ns, end_ns
    raw: list[dict[str, Any]] = field(default_factory=list)  # events that are written as they are
    threads: dict[int, str] = field(default_factory=dict)  # tid -> name
    devices: list[DeviceProperties] = field(default_factory=list)
    pid: int = 4242
    start_ns: int = 0
    end_ns: int | None = None  # None: where the last event ends

    def last_ns(self) -> int:
        """Return the end of the window."""
        if self.end_ns is not None:
            return self.end_ns
        ends = [span.end_ns for span in self.host] + [span.end_ns for span in self.gpu]
        ends += [event.time_ns for event in self.memory]
        return max(ends, default=self.start_ns)


def innermost(spans: Sequence[HostSpan], times: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Find the innermost span at each time. All spans are of one thread and properly nested.

    times: pairs (key, time_ns). Returns {key: index into spans} for the times within a span (start ≤ time <
    end).
    """
    order = sorted(range(len(spans)), key=lambda i: (spans[i].start_ns, -spans[i].end_ns, i))
    found: dict[int, int] = {}
    open_spans: list[int] = []
    at = 0
    for key, time in sorted(times, key=lambda pair: pair[1]):
        while at < len(order) and spans[order[at]].start_ns <= time:
            _close(open_spans, spans, spans[order[at]].start_ns)
            open_spans.append(order[at])
            at += 1
        _close(open_spans, spans, time)
        if open_spans:
            found[key] = open_spans[-1]
    return found


def _close(open_spans: list[int], spans: Sequence[HostSpan], time_ns: int) -> None:
    while open_spans and spans[open_spans[-1]].end_ns <= time_ns:
        open_spans.pop()


def parents(spans: Sequence[HostSpan]) -> list[int | None]:
    """Return the index of the span around each span, or None. All are of one thread and properly nested."""
    order = sorted(range(len(spans)), key=lambda i: (spans[i].start_ns, -spans[i].end_ns, i))
    result: list[int | None] = [None] * len(spans)
    open_spans: list[int] = []
    for index in order:
        _close(open_spans, spans, spans[index].start_ns)
        if open_spans:
            result[index] = open_spans[-1]
        open_spans.append(index)
    return result
