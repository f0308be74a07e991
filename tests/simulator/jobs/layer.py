"""The kernels of a transformer's layer, forward and backward, and the other kernels of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulator.jobs.rank import Rank

HIDDEN = 4_096

_GEMM = (
    "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_stage3_warpsize2x2x1_tensor16x8x16_kernel"
)
_GEMM_NN = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn"
_GEMM_NT = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nt"
_NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"
_NORM_BACK = "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<c10::BFloat16>"
_GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>"
_GELU_BACK = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluBackwardCUDAKernelImpl>"
_FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>"
_FLASH_BACK = "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128>>"
_LOSS = (
    "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 9, true, false>"
)
_ADAM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>"


@dataclass(frozen=True)
class Part:
    """One kernel of a layer's forward pass. share: of the layer's forward time.

    columns: of the matmul's weight in multiples of HIDDEN, in and out; None for other kernels.
    """

    operator: str
    kernel: str
    share: float
    columns: tuple[int, int] | None = None

    @property
    def is_attention(self) -> bool:
        return self.kernel == _FLASH

    def dims(self, tokens: int) -> Sequence[Sequence[int]]:
        if self.columns:
            into, out = (HIDDEN * columns for columns in self.columns)
            return ((out,), (tokens, into), (into, out))
        if self.is_attention:
            return ((tokens // 512, 32, 512, 128),) * 3
        return ((tokens, HIDDEN),)

    def blocks(self, tokens: int) -> int:
        """Return the blocks of its grid: tiles of a matmul's output, rows of others."""
        if self.columns:
            return -(-tokens // 128) * HIDDEN * self.columns[1] // 256
        return -(-tokens // 128) * 32 if self.is_attention else tokens


ATTENTION = (
    Part("aten::native_layer_norm", _NORM, 0.02),
    Part("aten::addmm", _GEMM, 0.22, (1, 3)),
    Part("aten::_flash_attention_forward", _FLASH, 0.16),
    Part("aten::addmm", _GEMM, 0.08, (1, 1)),
)
MLP = (
    Part("aten::native_layer_norm", _NORM, 0.02),
    Part("aten::addmm", _GEMM, 0.23, (1, 4)),
    Part("aten::gelu", _GELU, 0.04),
    Part("aten::addmm", _GEMM, 0.23, (4, 1)),
)


class Layer:
    """One layer on one rank. us: its forward time for `usual` tokens."""

    def __init__(self, rank: Rank, us: float, usual: int, noise: float) -> None:
        self._rank = rank
        self._us = us
        self._usual = usual
        self._noise = noise

    def forward(self, parts: Sequence[Part], tokens: int) -> None:
        for part in parts:
            self._launch(part.operator, part.kernel, part, 1.0, tokens)

    def backward(self, parts: Sequence[Part], tokens: int) -> None:
        """Run the backward of each part: for a matmul, the gradients of its input and of its weight."""
        for part in reversed(parts):
            if part.columns:
                self._backward_launch("AddmmBackward0", "aten::mm", _GEMM_NN, part, 1.0, tokens)
                self._backward_launch("AddmmBackward0", "aten::mm", _GEMM_NT, part, 1.0, tokens)
            elif part.is_attention:
                name = "ScaledDotProductFlashAttentionBackward0"
                self._backward_launch(name, "aten::_flash_attention_backward", _FLASH_BACK, part, 2.4, tokens)
            elif part.kernel == _GELU:
                self._backward_launch("GeluBackward0", "aten::gelu_backward", _GELU_BACK, part, 1.3, tokens)
            else:
                name = "aten::native_layer_norm_backward"
                self._backward_launch("NativeLayerNormBackward0", name, _NORM_BACK, part, 2.2, tokens)

    def _backward_launch(
        self, node: str, operator: str, kernel: str, part: Part, times: float, tokens: int
    ) -> None:
        with self._rank.operators(f"autograd::engine::evaluate_function: {node}"):
            self._launch(operator, kernel, part, times, tokens)

    def _launch(self, operator: str, kernel: str, part: Part, times: float, tokens: int) -> None:
        ratio = tokens / self._usual
        # Longer sequences, not more of them: attention grows with the square.
        us = self._us * part.share * times * (ratio**2 if part.is_attention else ratio)
        self._rank.kernel(
            operator,
            kernel,
            us,
            part.dims(tokens),
            blocks=part.blocks(tokens),
            registers=168 if part.columns or part.is_attention else 32,
            noise=self._noise,
        )


# Of a layer's time, forward and backward.
_ATTENTION_SHARE = 0.16 * (1 + 2.4) / (1 + 2.4 * 0.16 + 2 * 0.76 + 1.3 * 0.04 + 2.2 * 0.04)


def layer_time(ratio: float) -> float:
    """Return how many times as long a layer takes if its sequences are `ratio` times as long."""
    return (1 - _ATTENTION_SHARE) * ratio + _ATTENTION_SHARE * ratio**2


def loss(rank: Rank, tokens: int) -> None:
    rank.kernel("aten::_log_softmax", _LOSS, 40 * tokens / 4_096, ((tokens, 50_304),))


def optimizer(rank: Rank, us: float) -> None:
    """Run a fused optimizer: two kernels."""
    with rank.frames("torch/optim/optimizer.py(492): wrapper"):
        with rank.span("annotation", "Optimizer.step#AdamW.step"):
            with rank.frames("torch/optim/adamw.py(220): step"):
                rank.spend(40_000)
                for _ in range(2):
                    rank.kernel("aten::_fused_adamw_", _ADAM, us / 2)
