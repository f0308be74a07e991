"""Machine: one host process and one simulated GPU, in virtual nanoseconds.

The host's actions are given in the order in which they run. One of its threads runs at a time, as in a
PyTorch process whose main thread waits for autograd. A launch determines at once when its work will run,
because nothing later can delay it: streams are first in, first out, and do not slow each other down. Kernels
keep their duration.

The caller names the cause of all host time, so the machine knows the truth that a diagnosis has to infer from
names and nesting alone (see truth.py).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.builder import DeviceProperties, GpuSpan, HostSpan, Recording, copy_name
from tests.builder.recording import GpuKind, HostKind
from tests.builder.story import DEFAULT_STREAM, Direction
from tests.simulator.heap import GPU, Device, Heap, Kind, rounded
from tests.simulator.written import Written, WrittenCall

COPY_STREAM = 20


@dataclass(frozen=True)
class Costs:
    """Costs in ns. The defaults are typical of traces of real jobs."""

    launch: int = 5_000  # a launch call
    latency: int = 2_000  # from a launch call's return to its kernel's start on an idle stream
    turnaround: int = 1_100  # from one kernel's end to the next one's start on its stream
    wake: int = 6_000  # from the GPU's end to the return of the call that waited for it
    graph_launch: int = 15_000
    graph_turnaround: int = 300  # between two kernels of a graph
    allocation: int = 350_000  # cudaMalloc
    release: int = 250_000  # cudaFree, after it has waited for the GPU
    copy_call: int = 7_000
    pinned_bytes_per_us: int = 24_000
    pageable_bytes_per_us: int = 6_000
    queue_depth: int = 1_024  # most outstanding launches; a further one waits inside its call


@dataclass(frozen=True)
class Without:
    """Host time that a fix removes: a run without it, everything else unchanged."""

    causes: frozenset[str] = frozenset()
    slow_operators: bool = False  # dispatch of SLOW_OPERATOR_NS and more
    waits: bool = False  # for the GPU, except those of copies to it
    loops: bool = False  # Python, dispatch and launching in loops that launch small kernels


HOST_WORK = ("python", "dispatch", "launch")

SLOW_OPERATOR_NS = 1_000_000
"""An operator that takes the host this long does more than launch something."""


@dataclass(slots=True)
class Spent:
    """A stretch of host time and its cause."""

    start_ns: int
    end_ns: int
    cause: str


@dataclass(slots=True)
class Launched:
    """GPU work and the call that launched it."""

    start_ns: int
    end_ns: int
    called_ns: int
    returned_ns: int
    waits: bool  # held back by something other than its own stream's earlier work
    later_node: bool  # of a graph: not its first


class Machine:
    """See the module. noise: relative spread of every cost and duration, drawn from `seed`."""

    def __init__(
        self,
        *,
        seed: int | str = 0,
        noise: float = 0.05,
        costs: Costs | None = None,
        without: Without | None = None,
        capacity_bytes: int = 16 * 2**30,
    ) -> None:
        self.costs = costs or Costs()
        self._without = without or Without()
        self.recording = Recording(devices=[DeviceProperties("Simulated GPU", total_bytes=capacity_bytes)])
        self.heap = Heap(self.recording)
        self.now_ns = 0
        self.slowdown = 1.0  # of kernels
        self.contention = 1.0  # slowdown of the host's own work
        self.spent: list[Spent] = []
        self.work: list[Launched] = []
        self.waits: list[tuple[int, int]] = []  # blocking calls
        self.loops: list[tuple[int, int]] = []  # loops that launch small kernels
        self.trips: list[tuple[int, int]] = []  # on the GPU
        self._random = random.Random(seed)
        self._noise = noise
        self._free_ns: dict[int, int] = {}  # stream -> end of the last work on it
        self._held_ns: dict[int, int] = {}  # stream -> nothing starts earlier
        self._outstanding: list[int] = []  # ends of work that has not ended
        self._correlation = 0
        self._cause: str | None = None
        self._in_loop = False
        self.main = self._new_thread("python")
        self.autograd = self._new_thread("pt_autograd_0")
        self._thread = self.main

    def _new_thread(self, name: str) -> int:
        tid = self.recording.pid + len(self.recording.threads)
        self.recording.threads[tid] = name
        return tid

    def about(self, ns: float) -> int:
        """Return the cost with noise, at least 1 ns."""
        return max(1, round(ns * (1 + self._noise * self._random.uniform(-1, 1))))

    # The host

    def spend(self, ns: float, cause: str) -> None:
        """Let the running thread work for about `ns`."""
        length = self.about(ns * (self.contention if cause in HOST_WORK else 1))
        slow = cause == "dispatch" and ns >= SLOW_OPERATOR_NS
        if not (slow and self._without.slow_operators):
            self.wait_until(self.now_ns + length, cause)

    def _until(self, end_ns: int, cause: str) -> None:
        if end_ns > self.now_ns:
            self.spent.append(Spent(self.now_ns, end_ns, self._cause or cause))
            self.now_ns = end_ns

    def wait_until(self, end_ns: int, cause: str) -> None:
        """Let the running thread wait for something outside, such as a loader's worker."""
        cause = self._cause or cause
        in_loop = self._in_loop and self._without.loops and cause in HOST_WORK
        if cause not in self._without.causes and not in_loop:
            self._until(end_ns, cause)

    def span(self, kind: HostKind, name: str) -> Written:
        """Add a span around what the running thread does inside."""
        return Written(self, HostSpan(kind, name, self._thread, self.now_ns, self.now_ns))

    @contextmanager
    def all_for(self, cause: str) -> Iterator[None]:
        """Attribute all time inside to this cause."""
        outer, self._cause = self._cause, self._cause or cause
        yield
        self._cause = outer

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Mark a loop that launches small kernels one after another where one launch would do."""
        start, self._in_loop = self.now_ns, True
        yield
        self._in_loop = False
        self.loops.append((start, self.now_ns))

    @contextmanager
    def trip(self) -> Iterator[None]:
        """Mark a round trip: the first work inside copies to the host, the last one back to the GPU."""
        number = len(self.work)
        yield
        self.trips.append((self.work[number].start_ns, self.work[-1].end_ns))

    @contextmanager
    def on_autograd(self, hand_over_ns: float) -> Iterator[None]:
        """Run autograd's thread while the main thread waits for it."""
        self.spend(hand_over_ns, "dispatch")
        self._thread = self.autograd
        yield
        self._thread = self.main
        self.spend(hand_over_ns, "dispatch")

    def _call(self, name: str) -> WrittenCall:
        self._correlation += 1
        kind: HostKind = "driver" if name.startswith("cu") and not name.startswith("cuda") else "runtime"
        span = HostSpan(kind, name, self._thread, self.now_ns, self.now_ns, self._correlation)
        return WrittenCall(self, span)

    # The GPU

    def _run(
        self, ready_ns: int, duration_ns: int, stream: int, turnaround_ns: int = 0
    ) -> tuple[int, int, bool]:
        """Put work on a stream. Return its start, its end, and whether something else held it back."""
        after = self._free_ns.get(stream, 0) + self.about(turnaround_ns or self.costs.turnaround)
        own = max(ready_ns + self.about(self.costs.latency), after)
        held = self._held_ns.get(stream, 0)
        start = max(own, held)
        end = start + duration_ns
        self._free_ns[stream] = end
        heapq.heappush(self._outstanding, end)
        return start, end, held > own

    def _wait_for_room(self) -> None:
        while self._outstanding and self._outstanding[0] <= self.now_ns:
            heapq.heappop(self._outstanding)
        if len(self._outstanding) >= self.costs.queue_depth:
            self._until(heapq.heappop(self._outstanding), "launch")

    def launch(
        self,
        name: str,
        duration_ns: float,
        *,
        stream: int = DEFAULT_STREAM,
        call: str = "cudaLaunchKernel",
        kind: GpuKind = "kernel",
        bytes: int | None = None,
        loading_ns: float = 0,
        blocks_per_sm: float = 2,
        registers: int = 32,
    ) -> int:
        """Launch a kernel; return when it will end. loading_ns: the call first loads a module."""
        with self._call(call) as correlation:
            called = self.now_ns
            self._wait_for_room()
            if loading_ns:
                self.spend(loading_ns, "compile")
            else:
                self.spend(self.costs.launch, "launch")
            start, end, waits = self._run(self.now_ns, self.about(duration_ns * self.slowdown), stream)
            self._note(
                kind,
                name,
                stream,
                start=start,
                end=end,
                correlation=correlation,
                bytes=bytes,
                called=called,
                waits=waits,
                needs=(blocks_per_sm, registers),
            )
        return end

    def _note(
        self,
        kind: GpuKind,
        name: str,
        stream: int,
        *,
        start: int,
        end: int,
        correlation: int,
        called: int,
        waits: bool,
        bytes: int | None = None,
        needs: tuple[float, int] = (2, 32),
        later_node: bool = False,
    ) -> None:
        blocks, registers = needs
        args = {"blocks per SM": blocks, "warps per SM": 8 * blocks, "registers per thread": registers}
        self.recording.gpu.append(
            GpuSpan(kind, name, 0, stream, start, end, correlation, bytes, args if kind == "kernel" else {})
        )
        self.work.append(Launched(start, end, called, self.now_ns, waits, later_node))

    def graph_launch(self, kernels: list[tuple[str, float]], *, stream: int = DEFAULT_STREAM) -> int:
        """Launch many (name, duration ns) kernels at once; return when the last one will end."""
        end = self.now_ns
        with self._call("cudaGraphLaunch") as correlation:
            called = self.now_ns
            self._wait_for_room()
            self.spend(self.costs.graph_launch, "launch")
            for node, (name, duration_ns) in enumerate(kernels):
                turnaround = self.costs.graph_turnaround if node else self.costs.turnaround
                start, end, waits = self._run(
                    self.now_ns, self.about(duration_ns * self.slowdown), stream, turnaround
                )
                self._note(
                    "kernel",
                    name,
                    stream,
                    start=start,
                    end=end,
                    correlation=correlation,
                    called=called,
                    waits=waits,
                    later_node=node > 0,
                )
        return end

    def copy(self, direction: Direction, bytes: int, *, pinned: bool, stream: int = DEFAULT_STREAM) -> int:
        """Copy; return when the copy will end. With pageable memory the call lasts until then."""
        speed = self.costs.pinned_bytes_per_us if pinned else self.costs.pageable_bytes_per_us
        duration = self.about(1_500 + bytes * 1_000 / speed)
        with self._call("cudaMemcpyAsync") as correlation:
            called = self.now_ns
            self._wait_for_room()
            self.spend(self.costs.copy_call, "launch")
            start, end, waits = self._run(self.now_ns, duration, stream)
            if not pinned:
                self._block(end, since_ns=called, of_copy=direction == "HtoD")
            name = copy_name(direction, pinned=pinned)
            self._note(
                "memcpy",
                name,
                stream,
                start=start,
                end=end,
                correlation=correlation,
                called=called,
                waits=waits,
                bytes=bytes,
            )
        return end

    def busy_until(self, stream: int = DEFAULT_STREAM) -> int:
        """Return when the last work on a stream will end."""
        return self._free_ns.get(stream, 0)

    def hold(self, until_ns: int, *, stream: int = DEFAULT_STREAM) -> None:
        """Let nothing on the stream start earlier: it waits for an event from elsewhere."""
        with self._call("cudaStreamWaitEvent"):
            self.spend(1_500, "dispatch")
            self._held_ns[stream] = max(self._held_ns.get(stream, 0), until_ns)

    def _block(self, until_ns: int, *, since_ns: int, of_copy: bool) -> None:
        """Block the host, in a call that began at `since_ns`, until the GPU has reached `until_ns`."""
        if self._without.waits and not of_copy:
            return
        if until_ns > self.now_ns:
            self._until(until_ns + self.about(self.costs.wake), "sync")
        self.waits.append((since_ns, self.now_ns))

    def sync(
        self,
        call: str = "cudaStreamSynchronize",
        *,
        until_ns: int | None = None,
        of_copy: bool = False,
    ) -> None:
        """Block until `until_ns`, or until the GPU has nothing left to do."""
        with self._call(call):
            called = self.now_ns
            self.spend(1_500, "sync")
            until = max(self._free_ns.values(), default=0) if until_ns is None else until_ns
            self._block(until, since_ns=called, of_copy=of_copy)

    def run_unrecorded(self, duration_ns: float, *, stream: int = DEFAULT_STREAM) -> None:
        """Let the stream be busy with work that the trace does not have."""
        self._free_ns[stream] = max(self._free_ns.get(stream, 0), self.now_ns + self.about(duration_ns))

    def call(self, name: str, ns: float, cause: str) -> None:
        """Spend time in any other call."""
        with self._call(name):
            self.spend(ns, cause)

    def record_event(self) -> None:
        """Record an event: it completes when all work launched before has ended."""
        with self._call("cudaEventRecord"):
            pass

    def load_module(self, ns: float) -> None:
        """Load GPU code into the driver."""
        with self._call("cuModuleLoadData"):
            self.spend(ns, "compile")

    def allocate_from_driver(self, call: str = "cudaMalloc", bytes: int = 0) -> None:
        """Get memory from the driver because the caching allocator has nothing that fits."""
        with self._call(call):
            self.spend(self.costs.allocation, "allocator")
        if call == "cudaMalloc":
            self.heap.grow(bytes)

    def release_to_driver(self) -> None:
        """cudaFree: wait for the GPU, then return memory to the driver."""
        with self._call("cudaFree"):
            self.wait_until(max([*self._free_ns.values(), self.now_ns]), "allocator")
            self.spend(self.costs.release, "allocator")
        self.heap.shrink()

    # Memory

    def alloc(self, bytes: float, kind: Kind = "temporary", device: Device = GPU) -> int:
        """Allocate for the running thread; return the address. Ask the driver if nothing is left."""
        size = rounded(bytes) if device == GPU else round(bytes)
        if self.heap.lacks(size, device):
            self.allocate_from_driver(bytes=size)
        return self.heap.alloc(size, kind, device, self._thread, self.now_ns)

    def free(self, address: int) -> None:
        self.heap.free(address, self._thread, self.now_ns)
