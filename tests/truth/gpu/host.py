"""Jobs whose host cannot keep up, or waits for the GPU."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from tests.truth.gpu.parts import Images, Language, images, trainer, words
from tests.truth.job import gpu_job


def read_metrics(outputs: Tensor, targets: Tensor) -> list[float]:
    right = (outputs.argmax(dim=1) == targets).float()
    return [right[targets == label].sum().item() for label in range(10)]


@gpu_job(limiters="sync launch mixed python", rules="GD301", functions="read_metrics")
def metrics_read_each_step(fixed: bool) -> Iterator[None]:
    """Ten metrics are read with `.item()` in each step; fixed: in each hundredth."""
    model = Images(32, 6).cuda()
    train = trainer(model)
    inputs, targets = images(32, 96)
    step = 0
    while True:
        train(inputs, targets)
        step += 1
        if not fixed or step % 100 == 0:
            with torch.no_grad():
                read_metrics(model.last(torch.rand(32, 32, device="cuda")), targets)
        yield


@gpu_job(limiters="launch", rules="GD201 GD202", functions="step")
def optimizer_parameter_by_parameter(fixed: bool) -> Iterator[None]:
    """AdamW over many parameters one by one (`foreach=False`); fixed: `fused=True`."""
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(60))).cuda()
    how = {"fused": True} if fixed else {"foreach": False}
    train = trainer(
        model, nn.functional.mse_loss, optimizer=torch.optim.AdamW(model.parameters(), **how), bf16=False
    )
    inputs = torch.randn(2_048, 256, device="cuda")
    while True:
        train(inputs, inputs)
        yield


@gpu_job(limiters="launch", rules="GD201 GD202")
def small_batch_inference(fixed: bool) -> Iterator[None]:
    """A language model answers one short text, kernel by kernel; fixed: as a CUDA graph."""
    model = Language(8_192, 768, 12, 12).cuda().bfloat16().eval()
    inputs = words(1, 64, 8_192)[0]
    with torch.no_grad():
        for _ in range(3):
            model(inputs)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(inputs)
        while True:
            if fixed:
                graph.replay()
            else:
                model(inputs)
            yield


@gpu_job(limiters="compute memory", rules="GD511")
def evaluation_each_step(fixed: bool) -> Iterator[None]:
    """The model is evaluated on ten batches after each step; fixed: after each hundredth."""
    model = Images().cuda()
    train = trainer(model)
    batch = images(64, 96)
    step = 0
    while True:
        train(*batch)
        step += 1
        if not fixed or step % 100 == 99:
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                for _ in range(10):
                    model(batch[0])
        yield


@gpu_job(limiters="compile", rules="GD104", timed=8, recorded=2)
def compiled_for_each_shape(fixed: bool) -> Iterator[None]:
    """Batches of other sizes, each compiled for; fixed: padded to one size."""
    torch._dynamo.config.cache_size_limit = torch._dynamo.config.recompile_limit = 1_000
    model = torch.compile(nn.Sequential(nn.GELU(), nn.Softmax(dim=-1)), dynamic=False)
    inputs = torch.randn(2_048, 512, device="cuda")
    size = 1_024
    with torch.no_grad():
        while True:
            size += 1
            some = inputs[:size]
            model(nn.functional.pad(some, (0, 0, 0, 2_048 - size)) if fixed else some)
            yield


def targets_in_python(labels: list[int]) -> list[float]:
    counts = {label: labels.count(label) for label in labels}
    return [len(labels) / counts[label] for label in labels for _ in range(20)]


@gpu_job(limiters="python", rules="GD102", functions="targets_in_python")
def loop_in_python(fixed: bool) -> Iterator[None]:
    """Class weights are counted in Python in each step; fixed: once."""
    train = trainer(Images().cuda())
    inputs, targets = images(64, 96)
    labels = targets.tolist() * 20
    weights = targets_in_python(labels)
    while True:
        weights = weights if fixed else targets_in_python(labels)
        train(inputs * weights[0], targets)
        yield
