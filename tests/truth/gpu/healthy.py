"""Jobs on a GPU with nothing wrong."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.truth.gpu.parts import Images, Language, Slow, images, of_words, trainer, words
from tests.truth.job import gpu_job


@gpu_job()
def healthy_language_model(fixed: bool) -> Iterator[None]:
    """A compiled language model in bfloat16 with fused AdamW."""
    train = trainer(torch.compile(Language(32_768, 1_024, 6, 16).cuda()), of_words)
    batch = words(16, 1_024, 32_768)
    while True:
        train(*batch)
        yield


@gpu_job(allowed="GD505")
def healthy_images(fixed: bool) -> Iterator[None]:
    """A residual network in bfloat16, channels_last: GD505 may say that compiling fuses its small kernels."""
    torch.backends.cudnn.benchmark = True
    train = trainer(Images(256, 6).cuda().to(memory_format=torch.channels_last))
    inputs, targets = images(128, 112)
    inputs = inputs.to(memory_format=torch.channels_last)
    while True:
        train(inputs, targets)
        yield


@gpu_job()
def healthy_decoding(fixed: bool) -> Iterator[None]:
    """A language model decodes with a CUDA graph; a large batch."""
    model = Language(32_768, 1_024, 12, 16).cuda().bfloat16().eval()
    inputs = words(256, 16, 32_768)[0]
    with torch.no_grad():
        for _ in range(3):
            model(inputs)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(inputs)
        while True:
            graph.replay()
            yield


@gpu_job(allowed="GD505")
def healthy_loaded_images(fixed: bool) -> Iterator[None]:
    """A loader with enough workers, pinned memory and copies that do not wait."""
    train = trainer(Images(256, 6).cuda().to(memory_format=torch.channels_last))
    loader = DataLoader(Slow(), batch_size=128, num_workers=14, pin_memory=True, prefetch_factor=6)
    for inputs, targets in loader:
        inputs = inputs.to("cuda", non_blocking=True, memory_format=torch.channels_last)
        for _ in range(4):  # several updates on a batch, as in reinforcement learning
            train(inputs, targets.to("cuda", non_blocking=True))
        yield


@gpu_job(allowed="GD505")
def healthy_accumulated(fixed: bool) -> Iterator[None]:
    """Gradients of four micro-batches in each step; the loss is read every tenth step."""
    model = Language(16_384, 1_024, 4, 16).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs, targets = words(8, 1_024, 16_384)
    step = 0
    while True:
        optimizer.zero_grad()
        for _ in range(4):
            with torch.autocast("cuda", torch.bfloat16):
                loss = of_words(model(inputs), targets) / 4
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 10 == 0:
            loss.item()
        yield
