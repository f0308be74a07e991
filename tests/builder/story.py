"""TraceBuilder: builds a trace event by event, in microseconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tests.builder.forms import Generation
from tests.builder.recording import DeviceProperties, GpuKind, GpuSpan, HostSpan, MemoryEvent, Recording
from tests.builder.write import Document, TopLevel, document, to_bytes, write_file

Direction = Literal["HtoD", "DtoH", "DtoD"]
DEFAULT_STREAM = 7
FIRST_TID = 4242
FIRST_ADDRESS = 0x7F00_0000_0000


def _ns(us: float) -> int:
    return round(us * 1000)


class TraceBuilder:
    """Builds one trace event by event. See the package's docstring for an example.

    All times are µs from the window's start, rounded to whole ns. Nothing is checked: readers must survive
    traces that could not have been recorded, so those can be built too.
    """

    def __init__(
        self,
        generation: Generation = "C2",
        *,
        devices: Sequence[str] = ("Test GPU",),
        device_bytes: int = 16 * 2**30,
        pid: int = FIRST_TID,
        simulated: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        memory_as_spans: bool = False,
        top_level: dict[str, Any] | None = None,
    ) -> None:
        """Begin an empty trace.

        devices: names of the GPUs; none for a CPU-only trace.
        memory_as_spans: write `[memory]` events as spans, as torch 2.13's Python export does.
        top_level: further keys next to the events.
        """
        self.generation = generation
        self.recording = Recording(pid=pid)
        self.recording.devices = [DeviceProperties(name, total_bytes=device_bytes) for name in devices]
        self.top = TopLevel(
            simulated=simulated,
            rank=rank,
            world_size=world_size,
            memory_as_spans=memory_as_spans,
            extra=dict(top_level or {}),
        )
        self._correlation = 0
        self._address = FIRST_ADDRESS
        self._allocated: dict[int, tuple[int, int | None]] = {}

    def thread(self, name: str = "python", *, tid: int | None = None) -> HostThread:
        """Add a host thread. The first one is the main thread."""
        if tid is None:
            tid = self.recording.pid + len(self.recording.threads)
        self.recording.threads[tid] = name
        return HostThread(self, tid)

    def _gpu(
        self, kind: GpuKind, name: str, device: int, stream: int, at: float, us: float, **more: Any
    ) -> TraceBuilder:
        self.recording.gpu.append(GpuSpan(kind, name, device, stream, _ns(at), _ns(at + us), **more))
        return self

    def kernel(
        self,
        name: str,
        *,
        at: float,
        us: float,
        stream: int = DEFAULT_STREAM,
        device: int = 0,
        correlation: int | None = None,
    ) -> TraceBuilder:
        """Add GPU work without a launch, unless `correlation` is a call's."""
        return self._gpu("kernel", name, device, stream, at, us, correlation=correlation)

    def gpu_annotation(
        self, name: str, *, at: float, us: float, stream: int = DEFAULT_STREAM, device: int = 0
    ) -> TraceBuilder:
        """Add the GPU's copy of a user annotation, which is not work."""
        return self._gpu("annotation", name, device, stream, at, us)

    def overhead(self, name: str, *, at: float, us: float) -> TraceBuilder:
        """Add time of the profiler's own, such as "Buffer Flush"."""
        self.recording.overhead.append((name, _ns(at), _ns(at + us)))
        return self

    def raw(self, event: dict[str, Any]) -> TraceBuilder:
        """Add an event that is written as it is, timestamps included."""
        self.recording.raw.append(event)
        return self

    def document(self) -> Document:
        """Return the JSON document as Python values. Float64 rounds B+'s timestamps: use `bytes` there."""
        return document(self.recording, self.generation, self.top)

    def bytes(self, *, gzipped: bool = False) -> bytes:
        """Return the file's bytes, with exact timestamps."""
        return to_bytes(self.recording, self.generation, self.top, gzipped=gzipped)

    def write(
        self, folder: Path, *, worker: str = "host_1", time: int | None = None, gzipped: bool = False
    ) -> Path:
        """Write `{worker}.{time}.pt.trace.json[.gz]` into `folder`, which is created if it does not exist."""
        return write_file(
            self.recording, self.generation, self.top, folder, worker=worker, time=time, gzipped=gzipped
        )

    def next_correlation(self) -> int:
        self._correlation += 1
        return self._correlation

    def next_address(self, size: int) -> int:
        address = self._address
        self._address += max(512, -(-size // 512) * 512)
        return address


class HostThread:
    """A host thread of a trace. Every method adds one thing that the thread did and returns the thread."""

    def __init__(self, builder: TraceBuilder, tid: int) -> None:
        self.builder = builder
        self.tid = tid

    def _span(self, kind: Any, name: str, at: float, us: float, **more: Any) -> HostThread:
        self.builder.recording.host.append(HostSpan(kind, name, self.tid, _ns(at), _ns(at + us), **more))
        return self

    def op(
        self,
        name: str,
        *,
        at: float,
        us: float,
        shapes: Sequence[Sequence[int]] | None = None,
        types: Sequence[str] | None = None,
        sequence: int | None = None,
        forward_thread: int | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> HostThread:
        """Add an operator. `sequence` and `forward_thread` link a backward operator to its forward one.
        `more`: arguments by their names in Kineto."""
        args: dict[str, Any] = dict(more or {})
        if shapes is not None:
            args["Input Dims"] = [list(shape) for shape in shapes]
        if types is not None:
            args["Input type"] = list(types)
        if sequence is not None:
            args["Sequence number"] = sequence
            args["Fwd thread id"] = forward_thread or 0
        return self._span("op", name, at, us, args=args)

    def annotation(self, name: str, *, at: float, us: float) -> HostThread:
        """Add a `record_function` mark."""
        return self._span("annotation", name, at, us)

    def step(self, number: int, *, at: float, us: float) -> HostThread:
        """Add the profiler's mark of a step."""
        return self.annotation(f"ProfilerStep#{number}", at=at, us=us)

    def loader(self, *, at: float, us: float, workers: int = 0) -> HostThread:
        """Add the wait for the DataLoader's next batch."""
        kind = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
        return self.annotation(f"enumerate(DataLoader)#{kind}.__next__", at=at, us=us)

    def frame(self, place: str, *, at: float, us: float, called_from: str = "") -> HostThread:
        """Add a Python function: `train.py(12): train_step` or `nn.Module: Linear_0`.

        In generation A, which has no frames, it becomes part of the operators' `Call stack`. called_from: the
        line of the frame around it, `train.py:15`, which torch 2.14 and later record.
        """
        return self._span("frame", place, at, us, args={"CallFrom": called_from} if called_from else {})

    def call(self, name: str, *, at: float, us: float, correlation: int | None = None) -> HostThread:
        """Add a call into CUDA or HIP. `cu...` is a driver call, `cuda...` and `hip...` are runtime calls."""
        kind = "driver" if name.startswith("cu") and not name.startswith("cuda") else "runtime"
        if correlation is None:
            correlation = self.builder.next_correlation()
        return self._span(kind, name, at, us, correlation=correlation)

    def sync(self, call: str = "cudaStreamSynchronize", *, at: float, us: float) -> HostThread:
        """Add a blocking call."""
        return self.call(call, at=at, us=us)

    def launch(
        self,
        kernel: str,
        *,
        at: float,
        us: float,
        runs_at: float,
        runs_us: float,
        stream: int = DEFAULT_STREAM,
        device: int = 0,
        call: str = "cudaLaunchKernel",
        grid: Sequence[int] = (160, 1, 1),
        block: Sequence[int] = (256, 1, 1),
        registers: int = 32,
        shared_bytes: int = 0,
    ) -> HostThread:
        """Add a launch and its kernel."""
        correlation = self.builder.next_correlation()
        blocks = math.prod(grid) / DeviceProperties.multiprocessors
        warps = blocks * -(-math.prod(block) // 32)
        args = {"grid": list(grid), "block": list(block), "blocks per SM": round(blocks, 6)}
        args |= {"warps per SM": round(warps, 6), "registers per thread": registers}
        args["shared memory"] = shared_bytes
        self.builder._gpu(
            "kernel", kernel, device, stream, runs_at, runs_us, correlation=correlation, args=args
        )
        return self.call(call, at=at, us=us, correlation=correlation)

    def graph_launch(
        self,
        kernels: Sequence[tuple[str, float, float]],
        *,
        at: float,
        us: float,
        stream: int = DEFAULT_STREAM,
        device: int = 0,
        call: str = "cudaGraphLaunch",
        annotations: Sequence[Mapping[str, str]] = (),
    ) -> HostThread:
        """Add one launch of many kernels, each (name, start µs, duration µs). annotations: of the kernels."""
        correlation = self.builder.next_correlation()
        for node, (name, runs_at, runs_us) in enumerate(kernels):
            args: dict[str, Any] = {"graph id": 1, "graph node id": node}
            args.update(annotations[node] if annotations else {})
            self.builder._gpu(
                "kernel", name, device, stream, runs_at, runs_us, correlation=correlation, args=args
            )
        return self.call(call, at=at, us=us, correlation=correlation)

    def captured(self, kernel: str | None, *, at: float, us: float) -> HostThread:
        """Add a launch of ROCm that goes into a graph. kernel: None for a recorder that does not name it."""
        args = {"kernel": kernel} if kernel else {}
        correlation = self.builder.next_correlation()
        return self._span("runtime", "hipLaunchKernel", at, us, correlation=correlation, args=args)

    def copy(
        self,
        direction: Direction,
        *,
        at: float,
        us: float,
        runs_at: float,
        runs_us: float,
        bytes: int,
        pinned: bool = False,
        stream: int = DEFAULT_STREAM,
        device: int = 0,
        call: str = "cudaMemcpyAsync",
    ) -> HostThread:
        """Add a copy call and its copy. `pinned` is about the host's side."""
        correlation = self.builder.next_correlation()
        name = copy_name(direction, pinned=pinned)
        self.builder._gpu(
            "memcpy", name, device, stream, runs_at, runs_us, correlation=correlation, bytes=bytes
        )
        return self.call(call, at=at, us=us, correlation=correlation)

    def memset(
        self,
        *,
        at: float,
        us: float,
        runs_at: float,
        runs_us: float,
        bytes: int,
        stream: int = DEFAULT_STREAM,
        device: int = 0,
    ) -> HostThread:
        """Add a memset call and its memset."""
        correlation = self.builder.next_correlation()
        self.builder._gpu(
            "memset",
            "Memset (Device)",
            device,
            stream,
            runs_at,
            runs_us,
            correlation=correlation,
            bytes=bytes,
        )
        return self.call("cudaMemsetAsync", at=at, us=us, correlation=correlation)

    def item(
        self, *, at: float, us: float, runs_at: float, runs_us: float = 1, stream: int = DEFAULT_STREAM
    ) -> HostThread:
        """Add an `.item()`: two operators, a copy of four bytes to the host, and a sync until 2 µs before
        their end.

        `runs_at` is when the copy runs. Its call lasts from 3 to 10 µs after `at`, the sync starts at 11.
        """
        self.op("aten::item", at=at, us=us).op("aten::_local_scalar_dense", at=at + 1, us=us - 2)
        self.copy("DtoH", at=at + 3, us=7, runs_at=runs_at, runs_us=runs_us, bytes=4, stream=stream)
        return self.sync(at=at + 11, us=us - 13)

    def alloc(
        self,
        bytes: int,
        *,
        at: float,
        address: int | None = None,
        device: int | None = 0,
        reserved: int | None = None,
    ) -> int:
        """Add an allocation; return its address. `reserved` is the allocator's total after it."""
        if address is None:
            address = self.builder.next_address(bytes)
        self.builder._allocated[address] = (bytes, device)
        self.builder.recording.memory.append(MemoryEvent(self.tid, _ns(at), bytes, address, device, reserved))
        return address

    def free(self, address: int, *, at: float) -> HostThread:
        """Free the allocation with this address."""
        size, device = self.builder._allocated.pop(address)
        self.builder.recording.memory.append(MemoryEvent(self.tid, _ns(at), -size, address, device))
        return self


def copy_name(direction: Direction, *, pinned: bool) -> str:
    """Return a copy's name as Kineto writes it: the only place that shows pinned and pageable memory."""
    host = "Pinned" if pinned else "Pageable"
    source, target = {
        "HtoD": (host, "Device"),
        "DtoH": ("Device", host),
        "DtoD": ("Device", "Device"),
    }[direction]
    return f"Memcpy {direction} ({source} -> {target})"
