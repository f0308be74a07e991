"""Jobs whose kernels could be faster."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from tests.truth.gpu.parts import Block, Images, Language, images, of_words, perceptron, trainer, words
from tests.truth.job import gpu_job

BUSY = "compute memory"


@gpu_job(limiters=BUSY, rules="GD501")
def matmuls_in_fp32(fixed: bool) -> Iterator[None]:
    """Matmuls in FP32; fixed: as TF32 (`torch.backends.cuda.matmul.allow_tf32`)."""
    torch.backends.cuda.matmul.allow_tf32 = fixed
    train = trainer(perceptron(4_096, 4).cuda(), bf16=False)
    inputs, targets = torch.randn(4_096, 4_096, device="cuda"), torch.randint(10, (4_096,), device="cuda")
    while True:
        train(inputs, targets)
        yield


@gpu_job(limiters=BUSY, rules="GD513")
def transformer_in_tf32(fixed: bool) -> Iterator[None]:
    """A language model is trained with TF32 matmuls; fixed: with autocast to bfloat16."""
    torch.backends.cuda.matmul.allow_tf32 = True
    train = trainer(Language(8_192, 2_048, 4, 16).cuda(), of_words, bf16=fixed)
    batch = words(8, 512, 8_192)
    while True:
        train(*batch)
        yield


@gpu_job(limiters=BUSY, rules="GD509")
def doubles_by_accident(fixed: bool) -> Iterator[None]:
    """Inputs come from NumPy as float64, and the model was made to fit; fixed: float32."""
    kind = torch.float32 if fixed else torch.float64
    train = trainer(perceptron(2_048, 4).cuda().to(kind), bf16=False)
    inputs = torch.randn(2_048, 2_048, device="cuda", dtype=kind)
    targets = torch.randint(10, (2_048,), device="cuda")
    while True:
        train(inputs, targets)
        yield


@gpu_job(limiters=BUSY, rules="GD502")
def odd_vocabulary(fixed: bool) -> Iterator[None]:
    """A vocabulary of 50,257 words; fixed: padded to 50,304."""
    size = 50_304 if fixed else 50_257
    train = trainer(Language(size, 768, 2, 12).cuda(), of_words)
    batch = words(8, 512, 50_257)
    while True:
        train(*batch)
        yield


def attention_by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-1) @ v


@gpu_job(limiters=BUSY, rules="GD503", functions="attention_by_hand")
def attention_written_out(fixed: bool) -> Iterator[None]:
    """Attention as two matmuls and a softmax; fixed: scaled_dot_product_attention."""
    attention = None if fixed else attention_by_hand
    model = nn.Sequential(*(Block(1_024, 16, attention) for _ in range(4))).cuda()
    train = trainer(model, nn.functional.mse_loss)
    inputs = torch.randn(4, 2_048, 1_024, device="cuda", dtype=torch.bfloat16)
    while True:
        train(inputs, inputs)
        yield


def gelu_by_hand(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def norm_by_hand(x: Tensor) -> Tensor:
    x = x - x.mean(dim=-1, keepdim=True)
    return x / (x.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()


@gpu_job(limiters=BUSY, rules="GD505", functions="norm_by_hand gelu_by_hand")
def small_operators_on_large_tensors(fixed: bool) -> Iterator[None]:
    """LayerNorm and GELU from single operators; fixed: torch's own."""
    layers = nn.ModuleList(nn.Linear(2_048, 2_048) for _ in range(4)).cuda().bfloat16()
    norm = (lambda x: nn.functional.layer_norm(x, x.shape[-1:])) if fixed else norm_by_hand
    gelu = (lambda x: nn.functional.gelu(x, approximate="tanh")) if fixed else gelu_by_hand
    inputs = torch.randn(16_384, 2_048, device="cuda", dtype=torch.bfloat16)
    while True:
        x = inputs
        for layer in layers:
            x = x + gelu(layer(norm(x)))
        x.square().mean().backward()
        yield


@gpu_job(limiters=BUSY, rules="GD506", functions="cast_layer")
def weights_cast_each_time(fixed: bool) -> Iterator[None]:
    """FP32 weights are cast to bfloat16 in each call of an inference; fixed: once."""
    layers = [torch.randn(8_192, 8_192, device="cuda") for _ in range(6)]
    if fixed:
        layers = [layer.bfloat16() for layer in layers]
    inputs = torch.randn(64, 8_192, device="cuda", dtype=torch.bfloat16)

    def cast_layer(x: Tensor, weight: Tensor) -> Tensor:
        return x @ weight.bfloat16()

    while True:
        x = inputs
        for weight in layers:
            x = cast_layer(x, weight)
        yield


def one_by_one(model: nn.Module, inputs: Tensor) -> Tensor:
    return torch.cat([model(inputs[index : index + 1]) for index in range(len(inputs))])


@gpu_job(limiters="compute memory launch mixed", rules="GD504 GD201 GD202", functions="one_by_one")
def samples_one_by_one(fixed: bool) -> Iterator[None]:
    """Images go through the model one by one; fixed: in one batch."""
    model = Images(128, 6).cuda().bfloat16().eval()
    inputs = images(16, 112)[0].bfloat16()
    while True:
        with torch.no_grad():
            model(inputs) if fixed else one_by_one(model, inputs)
        yield
