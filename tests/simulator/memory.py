"""What a training step does with memory, and the leaks, as a user of PyTorch would write them."""

from __future__ import annotations

import random

from tests.simulator.faults import ELEMENTWISE, REDUCE, Faults
from tests.simulator.heap import CPU, GPU, Kind, rounded
from tests.simulator.job import Job
from tests.simulator.machine import Machine
from tests.simulator.script import place

LINEAR_SHARE = 0.8  # of a block's activations: its linear layer's; the rest is its ReLU's
CACHE_LAYERS = 4
CACHED_ROWS = 8  # in each layer's cache when the recording begins
METRICS = 3
HOST_SCALAR_BYTES = 4


class Memory(Faults):
    """Memory that a step allocates and frees. Sizes are bytes."""

    def __init__(self, job: Job, machine: Machine) -> None:
        super().__init__(job, machine)
        self._draw = random.Random(f"{job.leak} {job.steps} {job.varying}")
        self._scale = 1.0  # of the sizes of this step's batch and activations
        self._batch = 0  # addresses; 0 is none
        self._loss = 0
        self._gradients: list[int] = []
        self._activations: list[list[int]] = []
        self._grad_output = 0
        self._history: list[int] = []  # entries of a cache, oldest first
        self._rows: list[list[int]] = []  # each layer's cache: its address and its rows

    # What the step needs

    @property
    def _kept_activation(self) -> float:
        """Activations of one block. A leak of activations determines their size."""
        job = self.job
        if job.leak_bytes and job.leak == "retained_graph":
            return job.leak_bytes / job.blocks
        if job.leak_bytes and job.leak == "hooks":
            return job.leak_bytes / job.blocks / LINEAR_SHARE
        return job.activation_bytes

    @property
    def _weights(self) -> int:
        job = self.job
        return job.leak_bytes if job.leak_bytes and job.leak == "gradients" else job.weights_bytes

    def _start_memory(self) -> None:
        """Allocate the weights and reserve the memory that a step needs, as if the job had been running."""
        job, heap = self.job, self.machine.heap
        heap.start(rounded(self._weights))
        if job.leak == "growing_cache":
            size = CACHED_ROWS * self._row_bytes()
            self._rows = [[heap.start(size), CACHED_ROWS] for _ in range(CACHE_LAYERS)]
        activation = self._kept_activation * (1 + job.varying)
        # In backward, gradients replace activations, and there are two gradients of activations.
        needed = heap.allocated[GPU] + max(self._weights, job.blocks * activation) + 2 * activation
        needed += 2 * job.batch_bytes * (1 + job.varying)
        if job.plateau:
            needed += 3 * job.plateau_bytes * job.plateau_steps
        heap.reserve(min(round(needed * job.spare), job.capacity_bytes))

    def _begin_step_memory(self) -> None:
        self._scale = 1 + self.job.varying * self._draw.uniform(-1, 1)

    def _allocate_batch(self) -> None:
        """Allocate a batch, without noise in the host's time."""
        machine = self.machine
        with machine.span("op", "aten::empty_strided"):
            machine.wait_until(machine.now_ns + 500, "dispatch")
            before, self._batch = self._batch, machine.alloc(self.job.batch_bytes * self._scale, "input")
            if before:  # batches are allocated ahead of their step: one exists at any time
                machine.free(before)

    def _keep(self, bytes: float) -> None:
        """Allocate an activation of the innermost block."""
        self._activations[-1].append(self.machine.alloc(bytes, "activation"))

    def _linear_output(self) -> None:
        self._activations.append([])
        self._keep(self._kept_activation * LINEAR_SHARE * self._scale)

    def _relu_output(self) -> None:
        self._keep(self._kept_activation * (1 - LINEAR_SHARE) * self._scale)

    def _loss_output(self) -> None:
        before, self._loss = self._loss, self.machine.alloc(4, "other")
        if before and not (self.job.leak_bytes and self.job.leak == "retained_graph"):
            self.machine.free(before)

    def _host_loss(self) -> None:
        """Allocate a loss on the host, where train.py keeps all of them."""
        self.machine.alloc(HOST_SCALAR_BYTES, "other", CPU)

    def _grad_of_output(self) -> None:
        """Allocate the gradient that a block's backward pass passes on, and free the one before."""
        size = self._kept_activation * LINEAR_SHARE * self._scale
        before, self._grad_output = self._grad_output, self.machine.alloc(size, "temporary")
        if before:
            self.machine.free(before)

    def _grad_of_weight(self) -> None:
        if len(self._gradients) < self.job.blocks:
            self._gradients.append(self.machine.alloc(self._weights / self.job.blocks, "gradient"))
            return
        self.machine.free(self.machine.alloc(self._weights / self.job.blocks, "temporary"))  # added up

    def _forget_block(self) -> None:
        """Free the activations of a block whose backward pass is over, except for a leak."""
        linear, relu = self._activations.pop()
        kept = self.job.leak if self.job.leak_bytes else ""
        if kept != "retained_graph":
            self.machine.free(relu)
        if kept not in ("retained_graph", "hooks"):
            self.machine.free(linear)

    def _end_backward(self) -> None:
        if self._grad_output:
            self.machine.free(self._grad_output)
            self._grad_output = 0

    def _zero_grad(self, number: int) -> None:
        job = self.job
        if (number + 1) % job.accumulate:
            return
        machine = self.machine
        with machine.span("annotation", "Optimizer.zero_grad#SGD.zero_grad"):
            machine.wait_until(machine.now_ns + 500, "python")
            if not (job.leak_bytes and job.leak == "gradients"):
                for gradient in self._gradients:
                    machine.free(gradient)
            machine.wait_until(machine.now_ns + 500, "python")
        self._gradients.clear()

    def _end_step_memory(self) -> None:
        if self._batch and not self.job.varying:
            self.machine.free(self._batch)
            self._batch = 0

    # Leaks

    def _make(self, operator: str, bytes: float, kind: Kind = "other", kernel: str = ELEMENTWISE) -> int:
        """Allocate an operator's new tensor on the GPU."""
        machine = self.machine
        with self._op(operator):
            with machine.span("op", "aten::empty_strided"):
                machine.spend(1_000, "dispatch")
                address = machine.alloc(bytes, kind)
            machine.launch(kernel, self.job.small_us * 1_000)
        return address

    def _leak(self) -> None:
        """Leak after the training step. Leaks of activations and gradients are where those are freed."""
        job = self.job
        if job.leak == "kept_graph":
            self._evaluate()
        elif job.leak == "growing_cache":
            self._extend_cache()
        elif job.leak == "metrics":
            self._measure()
        elif job.leak_bytes and job.leak == "list":
            with self._frames(place("remember")):
                self._make("aten::clone", job.leak_bytes)
        if job.host_leak_bytes:
            with self._frames(place("collect_samples")), self._op("aten::clone"):
                self.machine.alloc(job.host_leak_bytes, "other", CPU)

    def _evaluate(self) -> None:
        """Run a forward pass without torch.no_grad(): a retained loss retains its whole graph."""
        job, machine = self.job, self.machine
        size, before = job.leak_bytes / job.blocks, 0
        with self._frames(place("evaluate"), "nn.Module: Model_0", place("Model.forward")):
            for block in range(job.blocks):
                with self._frames(f"nn.Module: Block_{block}", place("Block.forward")):
                    with self._frames(
                        f"nn.Module: Linear_{block}", "torch/nn/modules/linear.py(124): forward"
                    ):
                        with self._op("aten::linear", "aten::addmm"):
                            linear = machine.alloc(size * LINEAR_SHARE, "activation")
                            machine.launch(ELEMENTWISE, job.small_us * 1_000)
                    with self._op("aten::relu", "aten::clamp_min"):
                        relu = machine.alloc(size * (1 - LINEAR_SHARE), "activation")
                        machine.launch(ELEMENTWISE, job.small_us * 1_000)
                if not job.leak_bytes:
                    machine.free(linear)
                    if before:
                        machine.free(before)
                    before = relu
        with self._frames(place("evaluate")), self._op("aten::sum"):
            loss = machine.alloc(4, "other")
            machine.launch(REDUCE, job.small_us * 1_000)
        if not job.leak_bytes:
            machine.free(before)
            machine.free(loss)

    def _row_bytes(self) -> int:
        return rounded(self.job.leak_bytes / CACHE_LAYERS)

    def _extend_cache(self) -> None:
        """`cache = torch.cat([cache, new])`: the old cache is freed after the new one is allocated."""
        for cache in self._rows:
            with self._frames(place("extend_cache")), self._op("aten::cat"):
                old, rows = cache
                rows += bool(self.job.leak_bytes)
                cache[:] = self.machine.alloc(rows * self._row_bytes(), "other"), rows
                self.machine.launch(ELEMENTWISE, self.job.small_us * 1_000)
            self.machine.free(old)

    def _measure(self) -> None:
        """Allocate three small metrics on the GPU per step."""
        with self._frames(place("measure")):
            made = [
                self._make("aten::mean", max(self.job.leak_bytes, 1) / METRICS, kernel=REDUCE)
                for _ in range(METRICS)
            ]
        if not self.job.leak_bytes:
            for address in made:
                self.machine.free(address)

    # Allocations of the first steps

    def _warm_up(self, number: int) -> None:
        """Allocate the workspaces of libraries."""
        if self.job.plateau == "warm_up" and number < self.job.plateau_steps:
            self.machine.alloc(self.job.plateau_bytes / (1 + number), "other")

    def _fill_cache(self, number: int) -> None:
        """Add to a cache that drops its oldest entry once it is full."""
        if self.job.plateau == "cache":
            with self._frames(place("remember")):
                self._history.append(self._make("aten::clone", self.job.plateau_bytes * self._scale))
            if len(self._history) > self.job.plateau_steps:
                self.machine.free(self._history.pop(0))

    def _create_state(self, number: int) -> None:
        """Allocate Adam's two moments of every weight in the first step that needs them."""
        if self.job.plateau == "optimizer_state" and number == 1:
            for _ in range(self.job.blocks):
                for _ in range(2):
                    self._make(
                        "aten::zeros_like", self.job.weights_bytes / self.job.blocks, "optimizer_state"
                    )
