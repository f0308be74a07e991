"""Faults that cost GPU time, and faults of single steps, each as a user of PyTorch would write it."""

from __future__ import annotations

from tests.simulator.faults import Faults
from tests.simulator.heap import MIB
from tests.simulator.script import place

GEMM = "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_cublas"
FP32 = "ampere_sgemm_128x64_nn"
UNALIGNED = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>()"
LAYOUT = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 9, false>"
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>"
COLLECTIVE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"

NARROW_BLOCKS = 20  # of a kernel, on a GPU with 80 multiprocessors
TAIL = (2.2, 128)  # blocks per multiprocessor, and registers per thread, so that it runs two blocks at once
SLOWER = 3  # tensor cores would take a third of the time
TRIP_BYTES = 4 * MIB


class GpuFaults(Faults):
    """Slow kernels, needless data movement, uneven steps."""

    def _gemm(self, block: int) -> None:
        """Launch the matmul of one block's forward pass."""
        job, us = self.job, self.job.kernel_us
        if block < job.fp32_blocks:
            self.machine.launch(FP32, SLOWER * us * 1_000)
        elif block < job.odd_blocks:
            self.machine.launch(UNALIGNED, SLOWER * us * 1_000)
        elif block < job.narrow_blocks:
            self.machine.launch(GEMM, SLOWER * us * 1_000, blocks_per_sm=NARROW_BLOCKS / 80)
        elif block < job.tail_blocks:
            # 2.2 blocks on each multiprocessor, two at once: the second wave is nearly empty.
            waves = SLOWER * us * 1_000 * (TAIL[0] / 4 if job.even_waves else 1)
            blocks = 4 if job.even_waves else TAIL[0]
            self.machine.launch(GEMM, waves, blocks_per_sm=blocks, registers=TAIL[1])
        else:
            self.machine.launch(GEMM, us * 1_000)

    def _attend(self, block: int) -> None:
        if block < self.job.attention and self.job.fused_attention:
            with self._op("aten::_flash_attention_forward"):
                self.machine.launch(FLASH, 2 * self.job.kernel_us * 1_000)  # as long as the matmuls
        elif block < self.job.attention:
            for operator, kernel in (("aten::bmm", GEMM), ("aten::softmax", SOFTMAX), ("aten::bmm", GEMM)):
                with self._op(operator):
                    self.machine.launch(kernel, self.job.kernel_us * 1_000)

    def _make_contiguous(self, block: int) -> None:
        if block < self.job.layouts:
            with self._op("aten::contiguous", "aten::clone", "aten::copy_"):
                self.machine.launch(LAYOUT, self.job.kernel_us * 1_000)

    def _collect(self) -> None:
        if self.job.collect_us:
            with self._frames(place("collect"), "<built-in function collect>"):
                self.machine.spend(self.job.collect_us * 1_000, "python")

    def _validate(self, number: int) -> None:
        """Do more in every fourth step than in the others."""
        if self.job.uneven_us and number % 4 == 3:
            with self._frames(place("validate")):
                self.machine.spend(self.job.uneven_us * 1_000, "python")

    def _all_reduce(self) -> None:
        """Launch one collective for all gradients at the end of backward: nothing computes meanwhile."""
        if self.job.reduce_us:
            with self._op("c10d::allreduce_"):
                self.machine.launch(COLLECTIVE, self.job.reduce_us * 1_000)

    def _rank_elsewhere(self) -> None:
        """Copy a tensor to the host and back."""
        machine = self.machine
        for _ in range(self.job.trips):
            with self._frames(place("rank_elsewhere")), machine.trip():
                with self._op("aten::to", "aten::_to_copy", "aten::copy_"):
                    machine.copy("DtoH", TRIP_BYTES, pinned=True)
                    machine.sync("cudaStreamSynchronize")
                machine.spend(50_000, "python")
                with self._op("aten::to", "aten::_to_copy", "aten::copy_"):
                    machine.copy("HtoD", TRIP_BYTES, pinned=True)
