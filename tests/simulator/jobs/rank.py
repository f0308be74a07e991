"""Rank: the host and the GPU of one rank. It writes what the profiler of that rank would record."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tests.builder import DeviceProperties, GpuSpan, HostSpan, Recording, copy_name
from tests.builder.recording import GpuKind, HostKind
from tests.builder.story import DEFAULT_STREAM, Direction
from tests.simulator.jobs.links import NAMES, Kind, kernel_name
from tests.simulator.jobs.solver import Program, Solver, Work
from tests.simulator.written import Written, WrittenCall

COPY_STREAM = 20
COMM_STREAM = 24  # gradients
INNER_STREAM = 28  # collectives of a pipeline, tensor or expert group
GATHER_STREAM = 32  # weights in shards

LAUNCH_NS, DISPATCH_NS, LATENCY_NS, TURNAROUND_NS, WAKE_NS = 4_500, 6_000, 2_000, 1_100, 6_000
HICCUP = 1 / 500  # of host actions: the operating system runs something else
HICCUP_NS = 60_000
PINNED_BYTES_PER_US = 24_000
MULTIPROCESSORS = 108


@dataclass(slots=True)
class Recorded:
    """GPU work as the trace will show it once it has settled. step: in which it was launched."""

    kind: GpuKind
    name: str
    stream: int
    correlation: int | None
    work: Work
    args: Mapping[str, Any]
    bytes: int | None
    step: int


class Rank:
    """One process. `now_ns` is the true time on its host."""

    def __init__(
        self,
        number: int,
        device: int,
        solver: Solver,
        *,
        seed: str,
        start_ns: int,
        speed: float,
        stacks: bool,
    ) -> None:
        self.number = number
        self.now_ns = start_ns
        self.step = -1
        self.recording = Recording(pid=20_000 + 37 * number, start_ns=start_ns)
        self.device = device
        self.work: list[Recorded] = []
        self.slower = 1.0  # factor on compute kernels
        self._speed = speed  # of this GPU, next to others of its model
        self._solver = solver
        self._stacks = stacks
        self._kernels = random.Random(f"{seed} {number} kernels")
        self._host = random.Random(f"{seed} {number} host")
        self._extra = random.Random(f"{seed} {number} extra")
        self._in_extra = False
        self._last: dict[int, Work] = {}  # stream -> last work on it
        self._held: dict[int, list[Work]] = {}  # stream -> what its next work waits for
        self._correlation = 0
        self._main = self._thread = self._new_thread("python")
        self._autograd = self._new_thread("pt_autograd_0")

    def _new_thread(self, name: str) -> int:
        tid = self.recording.pid + 300 * len(self.recording.threads)
        self.recording.threads[tid] = name
        return tid

    # The host

    def spend(self, ns: float) -> None:
        """Let the host work for about `ns`."""
        draw = self._extra if self._in_extra else self._host
        length = ns * (1 + 0.08 * draw.gauss(0, 1))
        if draw.random() < HICCUP:
            length += draw.expovariate(1 / HICCUP_NS)
        self.now_ns += max(1, round(length))

    @contextmanager
    def extra(self) -> Iterator[None]:
        """Draw what a fault adds from numbers of its own, so that all else stays the same."""
        self._in_extra = True
        yield
        self._in_extra = False

    def span(self, kind: HostKind, name: str, args: Mapping[str, Any] | None = None) -> Written:
        """Add a span around what the host does inside."""
        return Written(self, HostSpan(kind, name, self._thread, self.now_ns, self.now_ns, None, args or {}))

    @contextmanager
    def frames(self, *names: str) -> Iterator[None]:
        with ExitStack() as stack:
            if self._stacks:
                for name in names:
                    stack.enter_context(self.span("frame", name))
            yield

    @contextmanager
    def operators(self, *names: str, args: Mapping[str, Any] | None = None) -> Iterator[None]:
        """Nest operators, the outermost first; `args` are of the innermost."""
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(self.span("op", name, args if name is names[-1] else None))
            self.spend(DISPATCH_NS)
            yield
            self.spend(1_500)

    @contextmanager
    def on_autograd(self) -> Iterator[None]:
        """Run autograd's thread while the main thread waits for it."""
        self.spend(12_000)
        self._thread = self._autograd
        yield
        self._thread = self._main
        self.spend(12_000)

    def _call(self, name: str) -> WrittenCall:
        self._correlation += 1
        now, number = self.now_ns, self._correlation
        return WrittenCall(self, HostSpan("runtime", name, self._thread, now, now, number))

    def call(self, name: str, ns: float) -> None:
        with self._call(name):
            self.spend(ns)

    def wait(self, work: Work, call: str = "cudaEventSynchronize") -> Program:
        """Block the host until work has ended."""
        with self._call(call):
            self.spend(1_500)
            yield from self._until(work)

    def wait_for_all(self, call: str = "cudaDeviceSynchronize", ns: float = 1_500) -> Program:
        """Block the host until all streams are empty, in a call that takes about `ns` more."""
        with self._call(call):
            for work in list(self._last.values()):
                yield from self._until(work)
            self.spend(ns)

    def _until(self, work: Work) -> Program:
        if work.end_ns is None:
            yield work
        assert work.end_ns is not None
        if work.end_ns > self.now_ns:
            self.now_ns = work.end_ns + WAKE_NS

    # The GPU

    def _put(
        self,
        kind: GpuKind,
        name: str,
        stream: int,
        correlation: int | None,
        work: Work,
        args: Mapping[str, Any] | None = None,
        bytes: int | None = None,
    ) -> Work:
        draw = self._extra if self._in_extra else self._kernels
        gap_ns = round(TURNAROUND_NS * draw.uniform(0.8, 1.4))
        last = self._last.get(stream)
        if last is not None:
            work.after.append((last, gap_ns))
        work.after += [(other, gap_ns) for other in self._held.pop(stream, [])]
        self._last[stream] = work
        self.work.append(Recorded(kind, name, stream, correlation, work, args or {}, bytes, self.step))
        self._solver.submit(work)
        return work

    def kernel(
        self,
        operator: str,
        name: str,
        us: float,
        dims: Sequence[Sequence[int]] = (),
        *,
        blocks: int = 216,
        registers: int = 32,
        stream: int = DEFAULT_STREAM,
        noise: float = 0.015,
    ) -> Work:
        """Run an operator that launches one kernel of about `us`.

        blocks: of its grid; registers: of each thread.
        """
        draw = self._extra if self._in_extra else self._kernels
        duration = us * 1_000 * self.slower / self._speed * max(0.5, 1 + noise * draw.gauss(0, 1))
        args = {"Input Dims": [list(d) for d in dims], "Input type": ["c10::BFloat16"] * len(dims)}
        with self.operators(operator, args=args if dims else None):
            with self._call("cudaLaunchKernel") as correlation:
                self.spend(LAUNCH_NS)
            work = Work(self.number, self.now_ns + LATENCY_NS, max(1, round(duration)))
            self._put("kernel", name, stream, correlation, work, _grid(blocks, 256, registers))
        self.spend(3_000)
        return work

    def copy(self, direction: Direction, bytes: int, *, pinned: bool, stream: int) -> Work:
        duration = round(1_500 + bytes * 1_000 / PINNED_BYTES_PER_US)
        with self.operators("aten::to", "aten::_to_copy", "aten::copy_"):
            with self._call("cudaMemcpyAsync") as correlation:
                self.spend(7_000)
            work = Work(self.number, self.now_ns + LATENCY_NS, duration)
            name = copy_name(direction, pinned=pinned)
            return self._put("memcpy", name, stream, correlation, work, bytes=bytes)

    def hold(self, stream: int, work: Work) -> None:
        """Let the stream's next work start after other work: cudaStreamWaitEvent."""
        with self._call("cudaStreamWaitEvent"):
            self.spend(1_000)
        self._held.setdefault(stream, []).append(work)

    def last(self, stream: int = DEFAULT_STREAM) -> Work | None:
        return self._last.get(stream)

    def collective(
        self,
        kind: Kind,
        work: Work,
        stream: int,
        recorded: Mapping[str, Any],
        *,
        after_compute: bool,
    ) -> Work:
        """Launch a collective. after_compute: it waits for what the compute stream has been given so far.

        recorded: what c10d records about it; work: its meeting is set.
        """
        naming = NAMES[kind]
        last = self.last()
        with self.operators(naming.operator, "record_param_comms", args=recorded):
            with self.span("annotation", naming.mark):
                with self._call("cudaEventRecord"):
                    self.spend(1_200)
                if last is not None and after_compute:
                    self.hold(stream, last)
                with self._call("cudaLaunchKernelExC") as correlation:
                    self.spend(LAUNCH_NS + 6_000)
                work.ready_ns = self.now_ns + LATENCY_NS
                args = {**_grid(24, 544, 96), **recorded}
                self._put("kernel", kernel_name(kind), stream, correlation, work, args)
        self.work.append(Recorded("annotation", naming.mark, stream, None, work, {}, None, self.step))
        return work

    # The trace

    def finish(self, devices: int) -> None:
        """Complete the recording when all work has settled."""
        self.recording.devices = [DeviceProperties("Simulated GPU", 80 * 2**30, MULTIPROCESSORS)] * devices
        for one in self.work:
            end = one.work.end_ns
            assert end is not None, f"rank {self.number}: {one.name} has not ended"
            self.recording.gpu.append(
                GpuSpan(
                    one.kind,
                    one.name,
                    self.device,
                    one.stream,
                    one.work.start_ns,
                    end,
                    one.correlation,
                    one.bytes,
                    one.args,
                )
            )


def _grid(blocks: int, threads: int, registers: int) -> dict[str, Any]:
    """Return the arguments of a kernel that say how it was launched."""
    return {
        "registers per thread": registers,
        "blocks per SM": blocks / MULTIPROCESSORS,
        "warps per SM": blocks * threads / 32 / MULTIPROCESSORS,
        "grid": [blocks, 1, 1],
        "block": [threads, 1, 1],
    }
