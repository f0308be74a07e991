"""Form: the events of a recording as each generation of the format writes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tests.builder.recording import GpuSpan, HostSpan, Recording, innermost, parents

Generation = Literal["A", "B", "B+", "C1", "C2"]
GENERATIONS: tuple[Generation, ...] = ("A", "B", "B+", "C1", "C2")

EPOCH_NS = 1_700_000_000_000_000_000
"""Start of the windows of built traces."""

BASE_NS = EPOCH_NS - 1_419_116_104_994_000_000
"""`baseTimeNanoseconds` of generation C, whose timestamps are relative to it."""

_HOST_CATEGORIES = {
    "op": "cpu_op",
    "annotation": "user_annotation",
    "frame": "python_function",
    "runtime": "cuda_runtime",
    "driver": "cuda_driver",
}
_OLD_HOST_CATEGORIES = {"op": "Operator", "annotation": "Operator", "runtime": "Runtime", "driver": "Runtime"}
_GPU_CATEGORIES = {
    "kernel": "kernel",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
    "annotation": "gpu_user_annotation",
}
_OLD_GPU_CATEGORIES = {"kernel": "Kernel", "memcpy": "Memcpy", "memset": "Memset"}
_DEVICE_TYPE_CPU = 0
_DEVICE_TYPE_CUDA = 1


@dataclass(slots=True)
class Timed:
    """An event whose timestamps are still whole ns from the window's start; None where it has none."""

    event: dict[str, Any]
    start_ns: int | None = None
    end_ns: int | None = None


class Form:
    """Writes one recording's events in one generation."""

    def __init__(self, recording: Recording, generation: Generation, *, memory_as_spans: bool) -> None:
        self.recording = recording
        self.generation = generation
        self.memory_as_spans = memory_as_spans
        self.old = generation == "A"
        self.by_thread: dict[int, list[HostSpan]] = defaultdict(list)
        for span in recording.host:
            self.by_thread[span.thread].append(span)
        self.external_ids: dict[int, int] = {}  # id(span) of an operator or annotation -> External id
        self.callers: dict[int, int] = {}  # correlation -> External id of the operator around the call
        self.calls: dict[int, HostSpan] = {}
        self._number_operators()
        self._event_index = 0

    def _number_operators(self) -> None:
        for spans in self.by_thread.values():
            for span in spans:
                if span.kind in ("op", "annotation"):
                    self.external_ids[id(span)] = len(self.external_ids) + 1
            self._find_callers(spans)

    def _find_callers(self, spans: list[HostSpan]) -> None:
        """Link one thread's calls to the operators around them. Annotations own no GPU work."""
        operators = [span for span in spans if span.kind == "op"]
        calls = [(span.correlation, span) for span in spans if span.correlation is not None]
        self.calls.update(calls)
        around = innermost(operators, ((correlation, call.start_ns) for correlation, call in calls))
        for correlation, operator in around.items():
            self.callers[correlation] = self.external_ids[id(operators[operator])]

    def _next_index(self) -> int:
        self._event_index += 1
        return self._event_index - 1

    def events(self) -> Iterator[Timed]:
        """Yield all events in the order in which Kineto writes them: by kind, not by time."""
        yield from self._metadata()
        for spans in self.by_thread.values():
            yield from self._operators(spans)
        yield from self._memory()
        if not self.old:
            for spans in self.by_thread.values():
                yield from self._frames(spans)
        yield from self._calls()
        for span in self.recording.gpu:
            yield from self._gpu(span)
        yield from self._window()
        for event in self.recording.raw:
            yield Timed(event)

    def _tid(self, tid: int) -> int | str:
        return str(tid) if self.old else tid

    def _metadata(self) -> Iterator[Timed]:
        pid, start = self.recording.pid, self.recording.start_ns

        def meta(what: str, pid: int, tid: int | str, **args: Any) -> Timed:
            return Timed({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}, start)

        yield meta("process_name", pid, 0, name="python")
        yield meta("process_labels", pid, 0, labels="CPU")
        for tid, name in self.recording.threads.items():
            yield meta("thread_name", pid, self._tid(tid), name=f"thread {tid} ({name})")
        for device in range(len(self.recording.devices)):
            yield meta("process_name", device, 0, name="python")
            yield meta("process_labels", device, 0, labels=f"GPU {device}")
        if not self.old:
            for device, stream in sorted({(span.device, span.stream) for span in self.recording.gpu}):
                yield meta("thread_name", device, stream, name=f"stream {stream} ")

    def _operators(self, spans: list[HostSpan]) -> Iterator[Timed]:
        operators = [span for span in spans if span.kind in ("op", "annotation")]
        stacks = self._call_stacks(spans, operators) if self.old else {}
        for index, span in enumerate(operators):
            args: dict[str, Any] = {"External id": self.external_ids[id(span)]}
            if self.old:
                args = {"Device": self.recording.pid, **args}
                args.update({"Trace name": "PyTorch Profiler", "Trace iteration": 0})
                if index in stacks:
                    args["Call stack"] = stacks[index]
            else:
                if self.generation in ("C1", "C2"):
                    args["Record function id"] = 0
                args["Ev Idx"] = self._next_index()
            category = (_OLD_HOST_CATEGORIES if self.old else _HOST_CATEGORIES)[span.kind]
            yield self._host_event(span, category, {**args, **span.args})

    def _call_stacks(self, spans: list[HostSpan], operators: list[HostSpan]) -> dict[int, str]:
        frames = [span for span in spans if span.kind == "frame"]
        around = innermost(frames, ((i, operator.start_ns) for i, operator in enumerate(operators)))
        parent_of = parents(frames)
        stacks = {}
        for operator, frame in around.items():
            names = []
            at: int | None = frame
            while at is not None:
                names.append(frames[at].name)
                at = parent_of[at]
            stacks[operator] = ";".join(names)
        return stacks

    def _host_event(self, span: HostSpan, category: str, args: dict[str, Any]) -> Timed:
        return Timed(
            {
                "ph": "X",
                "cat": category,
                "name": span.name,
                "pid": self.recording.pid,
                "tid": self._tid(span.thread),
                "args": args,
            },
            span.start_ns,
            span.end_ns,
        )

    def _frames(self, spans: list[HostSpan]) -> Iterator[Timed]:
        frames = [span for span in spans if span.kind == "frame"]
        first = self._event_index
        for index, (span, parent) in enumerate(zip(frames, parents(frames), strict=True)):
            args: dict[str, Any] = {
                "Python parent id": None if parent is None else first + parent + 1,
                "Python id": first + index + 1,
            }
            if span.name.startswith("nn.Module: "):
                args["Python module id"] = 0
            args["Ev Idx"] = self._next_index()
            yield self._host_event(span, _HOST_CATEGORIES["frame"], {**args, **span.args})

    def _calls(self) -> Iterator[Timed]:
        launched = {span.correlation for span in self.recording.gpu}
        for call in self.recording.host:
            if call.kind not in ("runtime", "driver"):
                continue
            assert call.correlation is not None, "a call has a correlation"
            args = {**self._external(call.correlation), "cbid": 0, "correlation": call.correlation}
            category = (_OLD_HOST_CATEGORIES if self.old else _HOST_CATEGORIES)[call.kind]
            yield self._host_event(call, category, {**args, **call.args})
            if call.correlation in launched:
                yield self._flow("s", call.correlation, self.recording.pid, call.thread, call.start_ns)

    def _external(self, correlation: int | None) -> dict[str, int]:
        """Return the argument that names the operator of a call or a kernel, as each generation writes it."""
        if correlation is None:
            return {}
        if self.generation == "B":
            return {"External id": correlation}  # as those versions wrote it: useless to find operators
        if correlation not in self.callers:
            return {}
        return {"external id" if self.old else "External id": self.callers[correlation]}

    def _flow(self, phase: str, correlation: int, pid: int, tid: int | str, at_ns: int) -> Timed:
        event: dict[str, Any] = {"ph": phase, "id": correlation, "pid": pid, "tid": tid}
        event.update({"cat": "async", "name": "launch"} if self.old else {"cat": "ac2g", "name": "ac2g"})
        if phase == "f":
            event["bp"] = "e"
        return Timed(event, at_ns)

    def _gpu(self, span: GpuSpan) -> Iterator[Timed]:
        categories = _OLD_GPU_CATEGORIES if self.old else _GPU_CATEGORIES
        if span.kind not in categories:
            return
        tid = f"stream {span.stream}" if self.old else span.stream
        args: dict[str, Any] = self._external(span.correlation)
        if span.kind != "annotation":
            args.update({"device": span.device, "context": 1, "stream": span.stream})
            args["correlation"] = 0 if span.correlation is None else span.correlation
        if span.kind == "kernel":
            args.update({"queued": 0, "registers per thread": 32, "shared memory": 0})
            args.update({"blocks per SM": 2.0, "warps per SM": 16.0, "est. achieved occupancy %": 50})
        if span.bytes is not None:
            args["bytes"] = span.bytes
            duration_us = max(span.end_ns - span.start_ns, 1) / 1000
            args["memory bandwidth (GB/s)"] = round(span.bytes / duration_us / 1000, 6)
        graph = () if self.generation == "C2" else ("graph id", "graph node id")
        args.update({key: value for key, value in span.args.items() if key not in graph})
        event = {"ph": "X", "cat": categories[span.kind], "name": span.name, "pid": span.device, "tid": tid}
        yield Timed({**event, "args": args}, span.start_ns, span.end_ns)
        if span.correlation in self.calls:
            assert span.correlation is not None
            yield self._flow("f", span.correlation, span.device, tid, span.start_ns)

    def _memory(self) -> Iterator[Timed]:
        allocated = defaultdict(int, self.recording.memory_start)
        reserved: dict[int | None, int] = defaultdict(lambda: self.recording.reserved_start)
        for event in sorted(self.recording.memory, key=lambda event: event.time_ns):
            device = event.device
            allocated[device] += event.bytes
            if event.reserved is not None:
                reserved[device] = event.reserved
            elif device is None:
                reserved[device] = 0
            else:
                reserved[device] = max(reserved[device], allocated[device])
            args: dict[str, Any] = {
                "Device Type": _DEVICE_TYPE_CPU if device is None else _DEVICE_TYPE_CUDA,
                "Device Id": -1 if device is None else device,
                "Bytes": event.bytes,
            }
            common: dict[str, Any] = {"name": "[memory]", "pid": self.recording.pid, "tid": event.thread}
            if self.old:
                yield Timed({"ph": "i", "s": "t", **common, "args": args}, event.time_ns)
                continue
            args = {
                "Total Reserved": reserved[device],
                "Total Allocated": allocated[device],
                **args,
                "Addr": event.address,
                "Ev Idx": self._next_index(),
            }
            common.update({"cat": "cpu_instant_event", "args": args})
            if self.memory_as_spans:
                yield Timed({"ph": "X", **common}, event.time_ns, self.recording.last_ns())
            else:
                yield Timed({"ph": "i", "s": "t", **common}, event.time_ns)

    def _window(self) -> Iterator[Timed]:
        start, end = self.recording.start_ns, self.recording.last_ns()
        for name, begins, ends in self.recording.overhead:
            yield Timed({"ph": "X", "cat": "overhead", "name": name, "pid": -1, "tid": 0}, begins, ends)
        span = {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans"}
        yield Timed({**span, "tid": "PyTorch Profiler", "args": {"Op count": 0}}, start, end)
        begin = {"ph": "i", "s": "g", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces"}
        yield Timed({**begin, "tid": "Trace PyTorch Profiler"}, start)
        yield Timed({"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": ""}, end)
