"""More small real GPU jobs, each with one mechanism that makes it slow or leaky."""

import itertools
import random
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from tests.truth.job import gpu_job


class Layer(nn.Module):
    """Pre-norm transformer layer."""

    def __init__(self, width, heads, attend=None):
        super().__init__()
        self.heads, self.attend = heads, attend
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        if self.attend is not None:
            y = self.attend(q, k, v)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norm2(x))


class SmallGPT(nn.Module):
    def __init__(self, layers, width, heads, vocab=8000, attend=None):
        super().__init__()
        self.token, self.position = nn.Embedding(vocab, width), nn.Embedding(2048, width)
        self.layers = nn.ModuleList(Layer(width, heads, attend) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.token(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def mlp(width, depth, classes=None, hidden=None):
    parts = []
    for _ in range(depth):
        parts += [nn.Linear(width, hidden or width), nn.GELU()] + (
            [nn.Linear(hidden, width)] if hidden else []
        )
    return nn.Sequential(*parts, nn.Linear(width, classes or width))


def lm_loss(model, ids):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def learn(loss, optimizer):
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def forever(loader):
    while True:
        yield from loader


def softmax_attention(q, k, v):
    with torch.autocast("cuda", enabled=False):
        scores = q.float() @ k.float().transpose(2, 3) / q.shape[3] ** 0.5
        hidden = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device).triu(1)
        return scores.masked_fill(hidden, float("-inf")).softmax(3) @ v.float()


@gpu_job(limiters="compute memory", rules="GD503 GD501", functions="softmax_attention")
def attention_in_float32_by_hand(fixed: bool) -> Iterator[None]:
    """Attention by hand with float32 scores inside an autocast model; fixed: scaled_dot_product_attention in bfloat16.

    Expected: GPU-bound: float32 matmuls without tensor cores and memory-bound softmax/mask over T x T scores; advice:
    F.scaled_dot_product_attention (flash); code: softmax_attention. Gives 2-3x.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    model = SmallGPT(4, 1024, 16, attend=None if fixed else softmax_attention).cuda()
    optimizer, ids = adamw(model), torch.randint(0, 8000, (8, 1024), device="cuda")
    while True:
        learn(lm_loss(model, ids), optimizer)
        yield


def extend_cache(cache, new):
    return torch.cat((cache, new), 2)


# The fix gives nothing, as timed: cuDNN makes a plan for each length of the cache, on the host.
@gpu_job(limiters="python launch", rules="GD102")
def kv_cache_grown_by_cat(fixed: bool) -> Iterator[None]:  # complexipy: ignore
    """Decoding grows the key/value cache with torch.cat for each token; fixed: writes into a preallocated cache.

    Expected: GPU-bound, memory bandwidth: 4 GB of cache copied per token by cat kernels; advice: preallocate the cache
    and write in place (StaticCache); code: extend_cache. Gives about 2x.
    """
    width, heads, batch, n = 1024, 16, 64, 2048
    qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(4)).cuda().to(torch.bfloat16)
    shape = (batch, heads, 2560 if fixed else n, width // heads)
    caches = [[torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in "kv"] for _ in qkv]
    x = torch.randn(batch, 1, width, device="cuda", dtype=torch.bfloat16)
    while True:
        if n >= 2556:
            n, caches = 2048, caches if fixed else [[c[:, :, :2048].clone() for c in pair] for pair in caches]
        with torch.no_grad():
            for _ in range(4):
                for layer, pair in zip(qkv, caches):
                    q, *new = layer(x).view(batch, 1, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
                    for i in range(2):
                        if fixed:
                            pair[i][:, :, n : n + 1] = new[i]
                        else:
                            pair[i] = extend_cache(pair[i], new[i])
                    k, v = (c[:, :, : n + 1] for c in pair)
                    x = F.layer_norm(
                        x + F.scaled_dot_product_attention(q, k, v).reshape(batch, 1, width), (width,)
                    )
                n += 1
        yield


@gpu_job(limiters="compute memory", rules="GD506 GD505 GD507")
def resnet_in_nchw(fixed: bool) -> Iterator[None]:
    """bfloat16 ResNet in contiguous NCHW; fixed: model and images in channels_last.

    Expected: GPU-bound: cuDNN transposes NCHW to NHWC around convolutions and batch norm is slow; advice:
    memory_format=torch.channels_last; code: where model and images are made in resnet_in_nchw. Gives 1.2-1.8x.
    """
    from torchvision import models

    torch.backends.cudnn.benchmark = True
    layout = torch.channels_last if fixed else torch.contiguous_format
    model = models.resnet18().cuda().to(memory_format=layout)
    images = torch.randn(128, 3, 224, 224, device="cuda").to(memory_format=layout)
    optimizer, labels = adamw(model), torch.randint(0, 1000, (128,), device="cuda")
    while True:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        learn(loss, optimizer)
        yield


@gpu_job(
    limiters="memory sync mixed python",
    rules="GD103 GD402 GD403",
    environment={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:32"},
)
def ragged_batches_with_a_split_limit(fixed: bool) -> Iterator[None]:
    """max_split_size_mb:32 (copied from an out-of-memory message) with ragged batches in 6 GB; fixed: without it.

    Expected: cudaMalloc and cudaFree in almost each step (blocks are neither split nor reused; retries at the limit),
    the host waits in them; advice: drop the setting / expandable_segments / bucket the lengths; code: the allocator's
    setting, at most run_ragged. Gives 1.3-3x.
    """
    torch.cuda.set_per_process_memory_fraction(6 * 2**30 / torch.cuda.get_device_properties(0).total_memory)
    model = mlp(2048, 4, hidden=8192).cuda().to(torch.bfloat16)
    optimizer, rng = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True), random.Random(0)
    lengths = [rng.randrange(128, 1025, 8) for _ in range(97)]

    def run_ragged(length):
        x = torch.randn(16 * length, 2048, device="cuda", dtype=torch.bfloat16)
        learn(model(x).square().mean(), optimizer)

    for length in itertools.cycle(lengths):
        run_ragged(length)
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


def features_of(model, x, remove):
    kept = []
    handles = [model[i].register_forward_hook(lambda m, args, out: kept.append(out.detach())) for i in (1, 3)]
    out = model(x)
    for handle in handles if remove else ():
        handle.remove()
    return out, kept[-1]


@gpu_job(limiters="compute memory launch", rules="GD401", functions="features_of", snapshot=True)
def forward_hooks_never_removed(fixed: bool) -> Iterator[None]:
    """Registers forward hooks in each step and never removes them; fixed: removes the handles.

    Expected: GPU memory grows by 64 MB each step (every step's features stay in the hooks' lists) and the host slowly
    gets slower; advice: remove the hooks' handles / register once; code: features_of. Memory; time about 1.0x.
    """
    model = mlp(1024, 4).cuda()
    optimizer, x = adamw(model), torch.randn(8192, 1024, device="cuda")
    while True:
        out, features = features_of(model, x, remove=fixed)
        learn(out.square().mean() + 0 * features.mean(), optimizer)
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


@gpu_job(limiters="python launch sync mixed", rules="GD107")
def anomaly_mode_left_on(fixed: bool) -> Iterator[None]:
    """torch.autograd.set_detect_anomaly(True) left on; fixed: off.

    Expected: host-bound: stack traces for each node in forward, a NaN check with a sync for each gradient in backward;
    advice: switch anomaly detection off; code: the call in anomaly_mode_left_on. Gives 2x or more.
    """
    torch.autograd.set_detect_anomaly(not fixed)
    model = SmallGPT(3, 512, 8).cuda()
    optimizer, ids = adamw(model), torch.randint(0, 8000, (16, 256), device="cuda")
    while True:
        learn(lm_loss(model, ids), optimizer)
        yield


class Graph(nn.Module):
    """Message passing: gather, edge network, sum at the targets."""

    def __init__(self, layers, width, gather):
        super().__init__()
        self.nets, self.gather = nn.ModuleList(nn.Linear(width, width) for _ in range(layers)), gather

    def forward(self, h, source, target):
        for net in self.nets:
            messages = self.gather(net(h), source)
            h = h + torch.zeros_like(h).index_add(0, target, messages).relu()
        return h


def gather_by_indexing(h, source):
    return h[source]


def gather_by_index_select(h, source):
    return h.index_select(0, source)


@gpu_job(limiters="compute memory", rules="", environment={"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
def deterministic_algorithms_left_on(fixed: bool) -> Iterator[None]:
    """torch.use_deterministic_algorithms(True) in a graph network; fixed: off.

    Expected: GPU-bound: index_add runs as a sort plus index_put kernel instead of atomics (and new memory is filled);
    advice: deterministic mode only for debugging; code: the call in deterministic_algorithms_left_on. Gives 2x or more.
    """
    torch.use_deterministic_algorithms(not fixed)
    model = Graph(4, 128, gather_by_index_select).cuda()
    optimizer, h = adamw(model), torch.randn(50000, 128, device="cuda")
    source, target = torch.randint(0, 50000, (2, 800000), device="cuda")
    while True:
        learn(model(h, source, target).square().mean(), optimizer)
        yield


@gpu_job(limiters="compute memory", rules="")
def graph_messages_by_indexing(fixed: bool) -> Iterator[None]:
    """Gathers messages with h[source], whose backward sorts and serializes; fixed: index_select (atomic index_add).

    Expected: GPU-bound: indexing_backward and sort kernels of index_put in backward dominate; advice: index_select (or
    sorted CSR segments) instead of advanced indexing; code: gather_by_indexing. Gives 1.5-4x.
    """
    model = Graph(4, 128, gather_by_index_select if fixed else gather_by_indexing).cuda()
    optimizer, h = adamw(model), torch.randn(5000, 128, device="cuda")
    source, target = torch.randint(0, 5000, (2, 500000), device="cuda")
    while True:
        learn(model(h, source, target).square().mean(), optimizer)
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
