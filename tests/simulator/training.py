"""A training job on the machine: the steps of train.py, with the faults of a `Job`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.simulator.faults import REDUCE
from tests.simulator.gpu_faults import GEMM, GpuFaults
from tests.simulator.job import SLOWER_FROM, Job
from tests.simulator.loader import Loader
from tests.simulator.machine import COPY_STREAM, Machine
from tests.simulator.memory import Memory
from tests.simulator.script import place
from tests.simulator.variants import Variants

RELU = "void at::native::vectorized_elementwise_kernel<4, at::native::clamp_min_kernel>"
FOREACH = "void at::native::multi_tensor_apply_kernel<at::native::BinaryOpListAlphaFunctor>"

ENGINE = (
    "torch/_tensor.py(566): backward",
    "torch/autograd/__init__.py(255): backward",
    "torch/autograd/graph.py(966): _engine_run_backward",
    "<built-in method run_backward of torch._C._EngineBase object at 0x7f81a44c7010>",
)


class Training(Memory, GpuFaults, Variants):
    """One run of a job. run() fills the machine's recording. steps: (name, start ns, end ns)."""

    def __init__(self, job: Job, machine: Machine) -> None:
        super().__init__(job, machine)
        self.steps: list[tuple[str, int, int]] = []
        self._loader = Loader(job, machine)
        machine.contention = 1 + job.contention * (job.workers > 0)
        self._loss_ns = 0  # when the loss that the host waits for is on the host
        self._graph_ns = 0  # when the last launched graph will have run

    def run(self) -> None:
        machine = self.machine
        self._start_memory()
        with self._frames(place("<module>"), place("main"), place("train")):
            machine.spend(30_000, "python")
            for number in range(self.job.steps):
                machine.slowdown = self.job.slower_by if number >= SLOWER_FROM else 1
                start = machine.now_ns
                with ExitStack() as stack:
                    if self.job.with_steps:
                        stack.enter_context(machine.span("annotation", f"ProfilerStep#{number}"))
                    self._one_step(number)
                if self.job.with_steps:
                    self.steps.append((f"ProfilerStep#{number}", start, machine.now_ns))
            if self.job.trailing_us:
                machine.spend(self.job.trailing_us * 1_000, "trailing")
            with self._frames("torch/profiler/profiler.py(1205): stop"):
                machine.sync("cudaDeviceSynchronize")

    def _one_step(self, number: int) -> None:
        machine, job = self.machine, self.job
        if number == 0:
            self._create_context()
            self._wait_for_earlier_work()
        self._begin_step_memory()
        self._loader.next_batch()
        machine.spend(job.python_us * 1_000, "python")
        with self._frames(place("train_step")):
            if job.extra_python_us:
                with self._frames(place("reweigh_tokens")):
                    machine.spend(job.extra_python_us * 1_000, "python")
            self._pin_buffers()
            self._copy_batch()
            if job.compile_us:
                self._compile(job.compile_us)
            if job.warmup_us and number == 0:
                self._compile(job.warmup_us)
            self._load_modules()
            self._rank_on_the_host()
            self._collect()
            self._validate(number)
            for _ in range(job.workspace):
                self._grow_workspace()
            self._refill_cache()
            self._work_aside()
            if job.graph:
                self._replay_graph()
            elif job.compiled:
                self._run_compiled()
                self._optimizer(number)
            else:
                self._forward(number)
                self._use_fresh_kernels(number)
                self._rank_elsewhere()
                self._backward()
                self._optimizer(number)
            self._join_side()
            self._dump_activations()
            self._end_step_memory()
            self._empty_cache()
        self._fill_cache(number)
        self._leak()
        # The loss was copied as soon as it was computed. The wait for that copy keeps the host from running
        # ahead without bound, while the GPU still has the backward pass to do.
        machine.sync("cudaEventSynchronize", until_ns=self._loss_ns)
        with self._frames("torch/profiler/profiler.py(1227): step"):
            machine.spend(15_000, "profiler")

    def _create_context(self) -> None:
        if not self.job.context_us:
            return
        with self._op("aten::empty_strided"):
            self.machine.call("cudaDeviceGetStreamPriorityRange", self.job.context_us * 800, "initialization")
        with self._op("aten::convolution"):
            self.machine.call("cudaStreamCreateWithFlags", self.job.context_us * 200, "initialization")

    def _wait_for_earlier_work(self) -> None:
        if self.job.earlier_us:
            self.machine.run_unrecorded(self.job.earlier_us * 1_000)
            with self.machine.all_for("unrecorded"):
                self.machine.sync("cudaStreamSynchronize")

    def _copy_batch(self) -> None:
        machine, job = self.machine, self.job
        with self._op("aten::to", "aten::_to_copy", "aten::copy_"):
            self._allocate_batch()
            if job.pinned:
                machine.hold(machine.copy("HtoD", job.batch_bytes, pinned=True, stream=COPY_STREAM))
            else:
                machine.copy("HtoD", job.batch_bytes, pinned=False)
                machine.sync("cudaStreamSynchronize", of_copy=True)
        if job.stall_us:
            machine.hold(machine.busy_until() + machine.about(job.stall_us * 1_000))

    def _forward(self, number: int) -> None:
        machine, job = self.machine, self.job
        with self._frames(
            "nn.Module: Model_0", "torch/nn/modules/module.py(1782): _call_impl", place("Model.forward")
        ):
            self._warm_up(number)
            for block in range(job.blocks):
                machine.spend(job.python_us * 1_000, "python")
                with self._frames(f"nn.Module: Block_{block}", place("Block.forward")):
                    self._call_helpers()
                    self._make_contiguous(block)
                    self._attend(block)
                    with self._frames(
                        f"nn.Module: Linear_{block}", "torch/nn/modules/linear.py(124): forward"
                    ):
                        with self._op("aten::linear", "aten::addmm"):
                            self._linear_output()
                            self._gemm(block)
                    if block < job.checks - job.blocks:
                        self._check_alive()
                    machine.spend(job.python_us * 500, "python")
                    with self._op("aten::relu", "aten::clamp_min"):
                        self._relu_output()
                        machine.launch(RELU, job.small_us * 1_000)
                    if block < job.checks:
                        self._check_alive()
        with self._op("aten::sum"):
            self._loss_output()
            machine.launch(REDUCE, job.small_us * 1_000)
        with self._op("aten::to", "aten::_to_copy", "aten::copy_"):
            self._host_loss()
            self._loss_ns = machine.copy("DtoH", 4, pinned=True)
        machine.record_event()

    def _backward(self) -> None:
        machine, job = self.machine, self.job
        with self._frames(*ENGINE), machine.on_autograd(hand_over_ns=12_000):
            for _ in range(job.blocks):
                with self._backward_of("ThresholdBackward0", "aten::threshold_backward"):
                    self._grad_of_output()
                    machine.launch(RELU, job.small_us * 1_000)
                with self._backward_of("AddmmBackward0", "aten::mm"):
                    self._grad_of_weight()
                    machine.launch(GEMM, job.kernel_us * 1_000)
                    machine.spend(job.dispatch_us * 1_000, "dispatch")
                    machine.launch(GEMM, job.kernel_us * 1_000)
                    self._forget_block()
            self._end_backward()
        self._all_reduce()

    @contextmanager
    def _backward_of(self, node: str, operator: str) -> Iterator[None]:
        with self._op(f"autograd::engine::evaluate_function: {node}", node, operator):
            yield

    def _optimizer(self, number: int) -> None:
        machine, job = self.machine, self.job
        machine.spend(job.python_us * 1_000, "python")
        with self._frames("torch/optim/optimizer.py(492): wrapper"):
            with (
                machine.span("annotation", "Optimizer.step#SGD.step"),
                self._frames("torch/optim/sgd.py(108): step"),
            ):
                machine.spend(job.python_us * 2_000, "python")
                self._create_state(number)
                if job.parameters:
                    self._step_each_parameter()
                else:
                    with self._op("aten::_foreach_add_"):
                        machine.launch(FOREACH, job.small_us * job.blocks * 500)
                        machine.launch(FOREACH, job.small_us * job.blocks * 500)
        self._zero_grad(number)

    def _replay_graph(self) -> None:
        """Launch the whole step as one graph. The host waits for the last step's loss: this one's is ready
        only when the graph has run."""
        job = self.job
        gemm, relu = (GEMM, job.kernel_us * 1_000), (RELU, job.small_us * 1_000)
        kernels = (
            [gemm, relu] * job.blocks + [(REDUCE, job.small_us * 1_000)] + [relu, gemm, gemm] * job.blocks
        )
        kernels += [(FOREACH, job.small_us * job.blocks * 500)] * 2
        with self._frames("torch/cuda/graphs.py(138): replay"):
            self._loss_ns, self._graph_ns = self._graph_ns, self.machine.graph_launch(kernels)
