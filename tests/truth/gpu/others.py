"""Jobs written by somebody who knew neither the rules nor this project, kept as they came."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from tests.truth.job import gpu_job


class Layer(nn.Module):
    """Pre-norm transformer layer; past: a list that keeps keys and values."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, past=None, bias=None):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        if past is not None:
            if past:
                k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
            past[:] = [k, v]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=bias is None and t > 1)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norm2(x))


class SmallGPT(nn.Module):
    def __init__(self, layers, width, heads, vocab=8000):
        super().__init__()
        self.token, self.position = nn.Embedding(vocab, width), nn.Embedding(2048, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, ids, pasts=None, bias=None):
        start = pasts[0][0].shape[2] if pasts and pasts[0] else 0
        x = self.token(ids) + self.position(torch.arange(start, start + ids.shape[1], device=ids.device))
        for n, layer in enumerate(self.layers):
            x = layer(x, pasts[n] if pasts else None, bias)
        return self.head(self.norm(x))


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def learn(loss, optimizer):
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def lm_loss(model, ids, labels=None, **kw):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(ids, **kw)
        labels = ids if labels is None else labels
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def pad_batch(rows, length):
    ids = pad_sequence(rows, batch_first=True, padding_value=-100)
    return F.pad(ids, (0, max(0, length - ids.shape[1])), value=-100).pin_memory().cuda(non_blocking=True)


@gpu_job(limiters="compute memory", rules="")
def batches_padded_to_the_model_maximum(fixed: bool) -> Iterator[None]:
    """Texts of 32 to 256 tokens are all padded to 1024; fixed: padded to the longest of the batch.

    Expected: GPU-bound and looks healthy, but about 6 in 7 tokens are padding; advice: dynamic padding/bucketing;
    code: pad_batch. Gives about 3-4x. (A tool sees only a busy GPU; it may well miss this.)
    """
    model = SmallGPT(4, 768, 12).cuda()
    optimizer = adamw(model)
    rng = random.Random(0)
    while True:
        rows = [torch.randint(0, 8000, (rng.randint(32, 256),)) for _ in range(31)] + [
            torch.randint(0, 8000, (256,))
        ]
        labels = pad_batch(rows, 0 if fixed else 1024)
        learn(lm_loss(model, labels.clamp(min=0), labels), optimizer)
        yield


def run_experts(x, route, first, second):
    out = torch.zeros_like(x)
    for e in range(len(first)):
        rows = torch.where(route == e)[0]
        if rows.numel() > 0:
            out[rows] = F.gelu(x[rows] @ first[e]) @ second[e]
    return out


def run_experts_grouped(x, route, first, second):
    order = route.argsort()
    groups = x.index_select(0, order).view(len(first), -1, x.shape[1])
    y = torch.bmm(F.gelu(torch.bmm(groups, torch.stack(tuple(first)))), torch.stack(tuple(second)))
    return torch.zeros_like(x).index_copy(0, order, y.flatten(0, 1))


@gpu_job(limiters="sync launch mixed compute memory", rules="GD301 GD201 GD202", functions="run_experts")
def mixture_of_experts_in_a_loop(fixed: bool) -> Iterator[None]:
    """Each expert picks its tokens with torch.where in a Python loop; fixed: sorted tokens and one batched matmul.

    Expected: 24 hidden syncs a step (nonzero in where) plus small kernels and index_put backward; advice: group the
    tokens (sort, bmm / grouped GEMM) so that nothing waits for the row counts; code: run_experts. About 1.5-3x.
    """
    layers, experts, width = 3, 8, 1024
    first = [nn.ParameterList(torch.randn(width, 2048) * 0.02 for _ in range(experts)) for _ in range(layers)]
    second = [
        nn.ParameterList(torch.randn(2048, width) * 0.02 for _ in range(experts)) for _ in range(layers)
    ]
    model = nn.ModuleList(first + second).cuda().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(4096, width, device="cuda", dtype=torch.bfloat16)
    balanced = torch.arange(4096, device="cuda") % experts
    while True:
        h = x
        for n in range(layers):
            route = balanced[torch.randperm(4096, device="cuda")]
            h = h + (run_experts_grouped if fixed else run_experts)(h, route, model[n], model[layers + n])
        learn(h.float().square().mean(), optimizer)
        yield


def mlp(width, depth, classes=None, hidden=None):
    parts = []
    for _ in range(depth):
        parts += [nn.Linear(width, hidden or width), nn.GELU()] + (
            [nn.Linear(hidden, width)] if hidden else []
        )
    return nn.Sequential(*parts, nn.Linear(width, classes or width))


def alibi_bias(heads, length):
    place = torch.arange(length)
    distance = place[None, :] - place[:, None]
    slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
    bias = slopes[:, None, None] * distance
    return bias.masked_fill(distance > 0, float("-inf"))[None]


@gpu_job(limiters="python copy sync mixed", rules="GD302 GD102 GD301", functions="alibi_bias")
def alibi_bias_built_on_cpu(fixed: bool) -> Iterator[None]:
    """The ALiBi bias is built on the CPU and copied in every forward pass; fixed: built once, kept on the GPU.

    Expected: GPU idles while the host fills 64 MB tensors and copies them from pageable memory; advice: build on the
    GPU or once (register_buffer); code: alibi_bias. Gives 2-4x.
    """
    model = SmallGPT(4, 1024, 16).cuda()
    optimizer, ids = adamw(model), torch.randint(0, 8000, (4, 1024), device="cuda")
    kept = alibi_bias(16, 1024).cuda().to(torch.bfloat16)
    while True:
        bias = kept if fixed else alibi_bias(16, 1024).cuda().to(torch.bfloat16)
        learn(lm_loss(model, ids, bias=bias), optimizer)
        yield


@gpu_job()
def loss_read_each_step_without_harm(fixed: bool) -> Iterator[None]:
    """Healthy. Reads loss.item() at the end of each step of a GPU-bound job with few launches.

    Expected: GPU-bound; the sync at the step's end costs well under 5 % (few launches, long kernels): a hint at most.
    """
    model = mlp(4096, 6, hidden=8192).cuda().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)
    while True:
        loss = model(x).float().square().mean()
        learn(loss, optimizer)
        assert loss.item() >= 0
        yield


@gpu_job()
def matmuls_in_tf32(fixed: bool) -> Iterator[None]:
    """Healthy. float32 training with TF32 allowed (the user needs float32 weights and activations).

    Expected: GPU-bound TF32 matmuls; a tool may hint that bfloat16 would be faster still; float32 as such is no fault.
    """
    torch.backends.cuda.matmul.allow_tf32 = True
    model = mlp(4096, 4).cuda()
    optimizer, x = adamw(model), torch.randn(8192, 4096, device="cuda")
    while True:
        learn(model(x).square().mean(), optimizer)
        yield


@gpu_job()
def float16_with_gradient_scaler(fixed: bool) -> Iterator[None]:
    """Healthy. float16 autocast with GradScaler, unscale_ and clipping on a GPU-bound model.

    Expected: GPU-bound; GradScaler.step reads found_inf once a step (inherent, little cost): a hint at most.
    """
    model = mlp(2048, 6, hidden=8192).cuda()
    optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=1e-4), torch.amp.GradScaler("cuda")
    x = torch.randn(8192, 2048, device="cuda")
    while True:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        yield


def match_boxes(boxes, truths):
    boxes, truths, found = boxes.detach().cpu().numpy(), truths.cpu().numpy(), []
    for a, b in zip(boxes, truths):
        low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
        inter = np.clip(high - low, 0, None).prod(2)
        area_a, area_b = (a[:, 2:] - a[:, :2]).prod(1), (b[:, 2:] - b[:, :2]).prod(1)
        found.append((inter / (area_a[:, None] + area_b[None] - inter)).argmax(1))
    return torch.from_numpy(np.stack(found)).cuda()


def match_boxes_on_gpu(a, b):
    a = a.detach()
    low, high = (
        torch.maximum(a[:, :, None, :2], b[:, None, :, :2]),
        torch.minimum(a[:, :, None, 2:], b[:, None, :, 2:]),
    )
    inter = (high - low).clamp(min=0).prod(3)
    area_a, area_b = (a[:, :, 2:] - a[:, :, :2]).prod(2), (b[:, :, 2:] - b[:, :, :2]).prod(2)
    return (inter / (area_a[:, :, None] + area_b[:, None] - inter)).argmax(2)


@gpu_job(limiters="python sync mixed", rules="GD102 GD301 GD303", functions="match_boxes")
def boxes_matched_in_numpy(fixed: bool) -> Iterator[None]:
    """Box matching copies predictions to the host, loops over images in numpy, copies back; fixed: batched on the GPU.

    Expected: host-bound: GPU waits for numpy between forward and backward, plus the two copies' syncs; advice: do the
    matching batched on the GPU; code: match_boxes. Gives 3x or more.
    """
    model, truths = mlp(1024, 4, 4).cuda(), torch.rand(16, 40, 4, device="cuda")
    truths[:, :, 2:] += truths[:, :, :2]
    optimizer, x = adamw(model), torch.randn(16, 900, 1024, device="cuda")
    while True:
        out = model(x).sigmoid()
        boxes = torch.cat((out[:, :, :2], out[:, :, :2] + out[:, :, 2:] + 0.01), 2)
        index = (match_boxes_on_gpu if fixed else match_boxes)(boxes, truths)
        learn((boxes - truths.gather(1, index[:, :, None].expand(-1, -1, 4))).abs().mean(), optimizer)
        yield


@gpu_job(limiters="sync launch mixed", rules="GD301", environment={"CUDA_LAUNCH_BLOCKING": "1"})
def launch_blocking_left_on(fixed: bool) -> Iterator[None]:
    """CUDA_LAUNCH_BLOCKING=1 left on from debugging; fixed: not set.

    Expected: each launch waits for its kernel: host and GPU never overlap, launch calls are as long as kernels; advice:
    unset the variable; no code to change. Gives 1.3-2x.
    """
    model = SmallGPT(5, 512, 8).cuda()
    optimizer, ids = adamw(model), torch.randint(0, 8000, (16, 256), device="cuda")
    while True:
        learn(lm_loss(model, ids), optimizer)
        yield


class Prefetcher:
    """Copies the next batch on a stream of its own."""

    def __init__(self, batches):
        self.stream, self.batches = torch.cuda.Stream(), itertools.cycle(batches)
        self.preload()

    def preload(self):
        with torch.cuda.stream(self.stream):
            self.following = next(self.batches).cuda(non_blocking=True)

    def take(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        batch = self.following
        batch.record_stream(torch.cuda.current_stream())
        self.preload()
        return batch


@gpu_job(limiters="copy sync mixed", rules="GD302", functions="preload")
def prefetch_from_pageable_memory(fixed: bool) -> Iterator[None]:
    """A prefetcher copies 134 MB batches non_blocking on a side stream, from pageable memory; fixed: pinned batches.

    Expected: the host blocks in the pageable copies despite non_blocking=True and the side stream; GPU idle or starved;
    advice: pin_memory; code: Prefetcher.preload / where the batches are made. Gives 1.5-2.5x.
    """
    batches = [torch.randn(8192, 4096) for _ in range(3)]
    prefetcher = Prefetcher([b.pin_memory() for b in batches] if fixed else batches)
    model = mlp(4096, 2).cuda()
    optimizer = adamw(model)
    while True:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(prefetcher.take()).float().square().mean()
        learn(loss, optimizer)
        yield


class HandGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        t = torch.tanh(0.7978845608 * (x + 0.044715 * x**3))
        return grad * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608 * (1 + 3 * 0.044715 * x**2))


@gpu_job(limiters="memory compute", rules="GD505", functions="forward backward")
def gelu_in_a_python_function(fixed: bool) -> Iterator[None]:
    """GELU as a custom autograd.Function of many elementwise operators; fixed: F.gelu(approximate="tanh").

    Expected: GPU-bound, memory bandwidth: dozens of elementwise kernels over 134 MB; advice: the built-in fused
    operator (or torch.compile); code: HandGelu.forward and backward. Gives 1.5-2.5x.
    """
    ups = nn.ModuleList(nn.Linear(1024, 4096) for _ in range(4)).cuda().to(torch.bfloat16)
    downs = nn.ModuleList(nn.Linear(4096, 1024) for _ in range(4)).cuda().to(torch.bfloat16)
    optimizer = torch.optim.SGD([*ups.parameters(), *downs.parameters()], lr=1e-4, fused=True)
    x = torch.randn(16384, 1024, device="cuda", dtype=torch.bfloat16)
    while True:
        h = x
        for up, down in zip(ups, downs):
            h = h + down(F.gelu(up(h), approximate="tanh") if fixed else HandGelu.apply(up(h)))
        learn(h.square().mean(), optimizer)
        yield


def validate(model, x, y, results):
    logits = model(x)
    results.append((logits, y))
    return (logits.argmax(1) == y).float().mean()


@gpu_job(limiters="compute memory launch", rules="GD401", functions="validate", snapshot=True)
def validation_outputs_kept_with_graph(fixed: bool) -> Iterator[None]:
    """Validation without no_grad appends its logits, graph and all, to a list; fixed: no_grad and no list.

    Expected: GPU memory grows by some 130 MB each step (a leak: retained autograd graphs), step time about the same;
    advice: torch.no_grad() and detach/aggregate what is kept; code: validate. Mainly memory, time 1.0-1.1x.
    """
    model = mlp(1024, 8).cuda()
    optimizer, results = adamw(model), []
    x, y = torch.randn(4096, 1024, device="cuda"), torch.randint(0, 1024, (4096,), device="cuda")
    while True:
        learn(F.cross_entropy(model(x), y), optimizer)
        with torch.set_grad_enabled(not fixed):
            validate(model, x[:2048], y[:2048], [] if fixed else results)
        yield
