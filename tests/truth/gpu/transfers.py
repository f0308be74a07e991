"""Jobs that copy too much, or from the wrong memory; and that allocate, or keep, too much."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from tests.truth.gpu.parts import Images, Slow, images, trainer
from tests.truth.job import gpu_job


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


COPIES = "copy sync mixed"


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


@gpu_job(limiters="input", rules="GD101")
def one_worker(fixed: bool) -> Iterator[None]:
    """One worker for a fast GPU; fixed: twelve."""
    train = trainer(Images().cuda())
    loader = DataLoader(Slow(), batch_size=32, num_workers=12 if fixed else 1, pin_memory=True)
    for inputs, targets in loader:
        train(inputs.to("cuda", non_blocking=True), targets.to("cuda", non_blocking=True))
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
