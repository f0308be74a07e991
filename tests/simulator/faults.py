"""Faults that keep a GPU waiting, each as a user of PyTorch would write it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

from tests.simulator.heap import SEGMENT_BYTES
from tests.simulator.job import Job
from tests.simulator.machine import Machine
from tests.simulator.script import place

REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>"
SELECT = "void at::native::index_elementwise_kernel<128, 4, at::native::index_kernel_impl>"

LOADING_US = 3_000  # time to load a kernel's module
DUMP_STREAM = 22
HELPER_NS = 60  # a Python function that adds two numbers

COMPILER = (
    "torch/_dynamo/convert_frame.py(2308): __call__",
    "torch/_dynamo/convert_frame.py(1633): _compile",
    "torch/_dynamo/convert_frame.py(1667): compile_inner",
)


class Faults:
    """Parts of a training step that a healthy job does not have, and helpers that add frames and
    operators."""

    def __init__(self, job: Job, machine: Machine) -> None:
        self.job = job
        self.machine = machine

    @contextmanager
    def _frames(self, *names: str) -> Iterator[None]:
        with ExitStack() as stack:
            if self.job.with_stacks:
                for name in names:
                    stack.enter_context(self._recorded("frame", name, "python"))
            yield

    @contextmanager
    def _recorded(self, kind: Literal["frame", "op"], name: str, cause: str) -> Iterator[None]:
        """Add a span. Recording it takes time, about half of it inside the span."""
        half_ns = self.job.recorder_ns / 2
        if half_ns:
            self.machine.spend(half_ns, cause)
        with self.machine.span(kind, name):
            if half_ns:
                self.machine.spend(half_ns, cause)
            yield

    @contextmanager
    def _op(self, *names: str) -> Iterator[None]:
        """Nest operators, outermost first. The time before and after a launch inside them is dispatch."""
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(self._recorded("op", name, "dispatch"))
            self.machine.spend(self.job.dispatch_us * 1_000, "dispatch")
            yield
            self.machine.spend(1_500, "dispatch")

    def _compile(self, us: float) -> None:
        """Dynamo compiles again because this batch has a new shape."""
        machine = self.machine
        with self._frames(*COMPILER), machine.all_for("compile"):
            with self._op("_compile.compile_inner (dynamo_timed)"):
                machine.spend(us * 1_000, "compile")
                with self._op("aten::empty_strided"):
                    machine.spend(5_000, "dispatch")

    def _grow_workspace(self) -> None:
        with self._frames(place("grow_workspace")), self._op("aten::empty"):
            self.machine.release_to_driver()
            self.machine.allocate_from_driver()
            workspace = self.machine.alloc(SEGMENT_BYTES)
        self.machine.free(workspace)

    def _pin_buffers(self) -> None:
        for _ in range(self.job.pins):
            with self._frames(place("pin")), self._op("aten::pin_memory", "aten::_pin_memory"):
                self.machine.allocate_from_driver("cudaHostAlloc")

    def _empty_cache(self) -> None:
        if self.job.segments:
            with self._frames(place("tidy_up"), "torch/cuda/memory.py(222): empty_cache"):
                for _ in range(self.job.segments):
                    self.machine.release_to_driver()

    def _refill_cache(self) -> None:
        made = []
        for _ in range(self.job.segments):
            with self._op("aten::empty"):
                self.machine.allocate_from_driver()
                made.append(self.machine.alloc(SEGMENT_BYTES))
        for address in made:
            self.machine.free(address)

    def _load_modules(self) -> None:
        """Load kernels that are compiled at run time and not kept."""
        for _ in range(self.job.loads):
            with self._frames(place("run_custom_kernel")), self._op("CustomKernel"):
                self.machine.load_module(LOADING_US * 1_000)

    def _use_fresh_kernels(self, number: int) -> None:
        """Launch new kernels: CUDA loads a kernel's module inside the first call that launches it."""
        for kernel in range(self.job.fresh_kernels):
            with self._op("aten::add"):
                name = f"triton_poi_fused_add_{number * self.job.fresh_kernels + kernel}"
                self.machine.launch(name, self.job.small_us * 1_000, loading_ns=LOADING_US * 1_000)

    def _rank_on_the_host(self) -> None:
        if self.job.slow_operator_us:
            with self._frames(place("rank_tokens")), self._op("aten::sort"):
                self.machine.spend(self.job.slow_operator_us * 1_000, "dispatch")

    def _step_each_parameter(self) -> None:
        """Launch some small kernels for each parameter, as with `foreach=False`."""
        with self.machine.loop():
            for _ in range(self.job.parameters):
                for operator in ("aten::mul_", "aten::add_", "aten::addcdiv_"):
                    with self._op(operator):
                        self.machine.launch(ELEMENTWISE, self.job.small_us * 1_000)

    def _dump_activations(self) -> None:
        machine, job = self.machine, self.job
        if job.dump_bytes:
            with (
                self._frames(place("keep_activations")),
                self._op("aten::to", "aten::_to_copy", "aten::copy_"),
            ):
                if job.dump_pinned:
                    machine.hold(machine.busy_until(), stream=DUMP_STREAM)
                    machine.copy("DtoH", job.dump_bytes, pinned=True, stream=DUMP_STREAM)
                else:
                    machine.copy("DtoH", job.dump_bytes, pinned=False)
                    machine.sync("cudaStreamSynchronize")

    def _check_alive(self) -> None:
        machine, job = self.machine, self.job
        with self._frames(place("check_alive")):
            with self._op("aten::all"):
                machine.launch(REDUCE, job.small_us * 1_000)
            if job.read_by == "unread":
                return
            if job.read_by == "where":
                with self._op("aten::where"):
                    machine.launch(SELECT, job.small_us * 1_000)
            elif job.read_by == "synchronize":
                with self._frames("torch/cuda/__init__.py(1038): synchronize"):
                    machine.sync("cudaDeviceSynchronize")
            elif job.read_by == "nonzero":
                with self._op("aten::index"):
                    with self._op("aten::nonzero"):
                        machine.launch(REDUCE, job.small_us * 1_000)
                        machine.copy("DtoH", 4, pinned=False)
                        machine.sync("cudaStreamSynchronize")
                    machine.launch(SELECT, job.small_us * 1_000)
            elif job.read_by == "cpu":
                with self._op("aten::to", "aten::_to_copy", "aten::copy_"):
                    machine.copy("DtoH", 4_096, pinned=False)
                    machine.sync("cudaStreamSynchronize")
                machine.spend(20_000, "python")
            else:
                with self._op("aten::is_nonzero", "aten::item", "aten::_local_scalar_dense"):
                    machine.copy("DtoH", 1, pinned=False)
                    machine.sync("cudaStreamSynchronize")
