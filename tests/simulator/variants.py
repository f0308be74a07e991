"""Ways to run the same training step: many small Python functions, torch.compile, two streams."""

from __future__ import annotations

from tests.simulator.faults import ELEMENTWISE, HELPER_NS, REDUCE, Faults
from tests.simulator.gpu_faults import GEMM, LAYOUT, NARROW_BLOCKS
from tests.simulator.script import place

SIDE_STREAM = 21
SIDE_KERNEL_US = 80
MANY_REGISTERS = 168  # so that 12 of 64 warps fit on a multiprocessor
WRAPPER_US = 20  # Python between two kernels in the code that torch.compile writes
GUARDS_US = 25  # to look up the compiled code of a region
FUSED = ("triton_red_fused_native_layer_norm_0", "triton_poi_fused_add_relu_1")


class Variants(Faults):
    """Parts of a training step that differ in how they run, not in what they compute."""

    def _call_helpers(self) -> None:
        for _ in range(self.job.helper_calls):
            with self._frames(place("scale_of")):
                self.machine.spend(HELPER_NS, "python")

    # torch.compile

    def _run_compiled(self) -> None:
        """Run forward and backward, each as that many compiled graphs with Python between them."""
        job, machine = self.job, self.machine
        blocks = [
            job.blocks * (i + 1) // job.compiled - job.blocks * i // job.compiled for i in range(job.compiled)
        ]
        for region, count in enumerate(blocks):
            with self._op("TorchDynamo Cache Lookup"):
                machine.spend(GUARDS_US * 1_000, "dispatch")
            with self._op(f"Torch-Compiled Region: {region}/0"):
                with self._op("CompiledFunction"):
                    self._run_graph(region, count, matmuls=1)
            machine.spend(job.python_us * 4_000, "python")  # what torch.compile could not include
        with self._op("aten::sum"):
            self._loss_ns = machine.launch(REDUCE, job.small_us * 1_000)
        with machine.on_autograd(hand_over_ns=12_000):
            for region, count in reversed(list(enumerate(blocks))):
                node = "CompiledFunctionBackward"
                with self._op(f"autograd::engine::evaluate_function: {node}", node):
                    self._run_graph(region, count, matmuls=2)

    def _run_graph(self, region: int, blocks: int, *, matmuls: int) -> None:
        job, machine = self.job, self.machine
        with machine.span("annotation", f"## Call CompiledFxGraph f{region:04}{matmuls} ##"):
            for _ in range(blocks):
                for _ in range(matmuls):
                    machine.spend(WRAPPER_US * 1_000, "dispatch")
                    with self._op("aten::mm"):
                        machine.launch(GEMM, job.kernel_us * 1_000)
                for kernel in FUSED:
                    machine.spend(WRAPPER_US * 1_000, "dispatch")
                    with self._op(kernel):
                        machine.launch(kernel, job.small_us * 1_000, call="cuLaunchKernel")

    # Two streams

    def _work_aside(self) -> None:
        """Launch work that nothing in this step needs."""
        job, machine = self.job, self.machine
        name, blocks, registers = {
            "narrow": (ELEMENTWISE, NARROW_BLOCKS / 80, 32),
            "low_occupancy": (ELEMENTWISE, 4.0, MANY_REGISTERS),
            "layout": (LAYOUT, 2.0, 32),
        }[job.side]
        with self._frames(place("prepare_next")):
            for _ in range(round(job.side_us / SIDE_KERNEL_US)):
                with self._op("aten::flip"):
                    machine.launch(
                        name,
                        SIDE_KERNEL_US * 1_000,
                        stream=SIDE_STREAM,
                        blocks_per_sm=blocks,
                        registers=registers,
                    )

    def _join_side(self) -> None:
        """The next step's work waits for the side stream's."""
        if self.job.side_us:
            self.machine.hold(self.machine.busy_until(SIDE_STREAM))
