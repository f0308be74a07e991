"""Jobs that copy too much, or from the wrong memory; and that allocate, or keep, too much."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from tests.truth.gpu.parts import Block, Images, images, perceptron, trainer
from tests.truth.job import gpu_job

COPIES = "copy sync mixed"


class Ahead:
    """Batches whose copy runs on a stream of its own while the one before is used."""

    def __init__(self, *batch: Tensor) -> None:
        self.pinned = [each.pin_memory() for each in batch]
        self.stream = torch.cuda.Stream()
        self.next = self.copy()

    def copy(self) -> list[Tensor]:
        with torch.cuda.stream(self.stream):
            return [each.to("cuda", non_blocking=True) for each in self.pinned]

    def take(self) -> list[Tensor]:
        torch.cuda.current_stream().wait_stream(self.stream)
        for each in self.next:
            each.record_stream(torch.cuda.current_stream())
        this, self.next = self.next, self.copy()
        return this


@gpu_job(limiters=COPIES, rules="GD302")
def copies_from_pageable_memory(fixed: bool) -> Iterator[None]:
    """Batches are copied from pageable memory; fixed: pinned, on a stream of their own."""
    train = trainer(Images(32, 2).cuda())
    batch = images(256, 160, "cpu")
    ahead = Ahead(*batch)
    while True:
        train(*(ahead.take() if fixed else [each.to("cuda") for each in batch]))
        yield


@gpu_job(limiters="copy compute memory mixed", rules="GD304")
def copies_in_the_way(fixed: bool) -> Iterator[None]:
    """Pinned batches are copied on the stream that computes; fixed: on one of their own."""
    train = trainer(Images(32, 2).cuda())
    ahead = Ahead(*images(384, 160, "cpu"))
    while True:
        if fixed:
            train(*ahead.take())
        else:
            train(*(each.to("cuda", non_blocking=True) for each in ahead.pinned))
        yield


def normalized(pixels: Tensor) -> Tensor:
    return pixels.float() / 255 - 0.5


@gpu_job(limiters="copy sync python mixed", rules="GD302 GD102", functions="normalized")
def images_converted_on_the_host(fixed: bool) -> Iterator[None]:
    """Pixels become floats on the host, and are copied so; fixed: on the GPU."""
    train = trainer(Images(32, 2).cuda())
    pixels = (torch.rand(128, 3, 160, 160) * 255).byte().pin_memory()
    targets = torch.randint(10, (128,), device="cuda")
    while True:
        if fixed:
            train(normalized(pixels.to("cuda", non_blocking=True)), targets)
        else:
            train(normalized(pixels).to("cuda"), targets)
        yield


@gpu_job(limiters=COPIES, rules="GD302 GD301 GD303 GD304")
def outputs_brought_back(fixed: bool) -> Iterator[None]:
    """Large activations are copied to the host in each step, for a log; fixed: their mean, rarely."""
    train = trainer(Images(32, 2).cuda())
    batch = images(128, 96)
    features = torch.randn(64, 512, 512, device="cuda")
    log: list[Tensor] = []
    step = 0
    while True:
        train(*batch)
        step += 1
        if not fixed:
            log[:] = [features.cpu()]
        elif step % 100 == 0:
            log[:] = [features.mean()]
        yield


def small_tensors(count: int) -> list[Tensor]:
    return [torch.tensor([float(index), 1.0, 0.5]).cuda() for index in range(count)]


@gpu_job(limiters="python copy launch sync mixed", rules="GD303 GD301 GD302 GD102", functions="small_tensors")
def many_tiny_copies(fixed: bool) -> Iterator[None]:
    """Boxes are copied to the GPU one by one; fixed: in one tensor."""
    train = trainer(Images().cuda())
    batch = images(32, 96)
    while True:
        train(*batch)
        boxes = torch.tensor([[float(index), 1.0, 0.5] for index in range(300)])
        torch.stack(small_tensors(300)) if not fixed else boxes.pin_memory().cuda(non_blocking=True)
        yield


@gpu_job(limiters="memory sync mixed python", rules="GD103")
def cache_emptied(fixed: bool) -> Iterator[None]:
    """`torch.cuda.empty_cache()` in each step; fixed: not at all."""
    train = trainer(Images(64, 8).cuda())
    batch = images(64, 128)
    while True:
        train(*batch)
        if not fixed:
            torch.cuda.empty_cache()
        yield


@gpu_job(limiters="memory sync mixed python", rules="GD103 GD403 GD402", timed=32)
def ragged_sizes_under_a_limit(fixed: bool) -> Iterator[None]:
    """Sequences of ever other lengths fragment a GPU that is nearly full; fixed: padded to one length."""
    model = nn.Sequential(*(Block(1_024, 16) for _ in range(6))).cuda()
    train = trainer(model, nn.functional.mse_loss)
    inputs = torch.randn(4, 1_024, 1_024, device="cuda")
    train(inputs, inputs)
    limit = 1.05 * torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
    step = 0
    while True:
        step += 1
        length = 1_024 if fixed else 512 + step * 173 % 512
        some = inputs[:, :length]
        train(some, some)
        yield


class Slow(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = torch.rand(3, 96, 96)
        for _ in range(3):
            image = nn.functional.avg_pool2d(image, 3, stride=1, padding=1)
        return image, index % 10


@gpu_job(limiters="input", rules="GD101", functions="__getitem__")
def loader_in_the_training(fixed: bool) -> Iterator[None]:
    """Samples are made in the training process; fixed: by eight workers."""
    workers = {"num_workers": 8, "pin_memory": True, "prefetch_factor": 8} if fixed else {}
    torch.set_num_threads(1)
    train = trainer(Images().cuda())
    for inputs, targets in DataLoader(Slow(), batch_size=32, **workers):
        train(inputs.to("cuda", non_blocking=True), targets.to("cuda", non_blocking=True))
        yield


@gpu_job(limiters="input", rules="GD101")
def one_worker(fixed: bool) -> Iterator[None]:
    """One worker for a fast GPU; fixed: twelve."""
    train = trainer(Images().cuda())
    loader = DataLoader(Slow(), batch_size=32, num_workers=12 if fixed else 1, pin_memory=True)
    for inputs, targets in loader:
        train(inputs.to("cuda", non_blocking=True), targets.to("cuda", non_blocking=True))
        yield


@gpu_job(limiters="compute memory launch", rules="GD401", functions="keep", snapshot=True)
def losses_with_their_graphs(fixed: bool) -> Iterator[None]:
    """Losses are kept with their graphs; fixed: as numbers, once in a while."""
    model = perceptron(1_024, 4).cuda()
    train = trainer(model)
    inputs, targets = torch.randn(2_048, 1_024, device="cuda"), torch.randint(10, (2_048,), device="cuda")
    losses: list[Tensor] = []

    def keep(loss: Tensor) -> None:
        losses.append(loss)

    while True:
        train(inputs, targets)
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(inputs), targets)
        keep(loss.detach() if fixed else loss)
        yield


@gpu_job(limiters="compute memory launch", rules="GD401", functions="remember", snapshot=True)
def features_never_dropped(fixed: bool) -> Iterator[None]:
    """Features of each batch are kept for the end of the epoch; fixed: their mean."""
    train = trainer(Images().cuda())
    batch = images(64, 96)
    model = Images().cuda()
    features: list[Tensor] = []

    def remember(found: Tensor) -> None:
        features.append(found.mean(dim=0) if fixed else found)

    while True:
        train(*batch)
        with torch.no_grad():
            remember(model.first(batch[0]))
        yield
