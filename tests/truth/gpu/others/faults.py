"""Small real GPU jobs, each with one mechanism that makes it slow or leaky."""

import itertools
import json
import os
import random
import re
import tempfile
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from tests.truth.job import gpu_job

WORDS = ["".join(random.Random(i).choices("abcdefghijklmnop", k=6)) for i in range(8000)]


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


def mlp(width, depth, classes=None, hidden=None):
    parts = []
    for _ in range(depth):
        parts += [nn.Linear(width, hidden or width), nn.GELU()] + (
            [nn.Linear(hidden, width)] if hidden else []
        )
    return nn.Sequential(*parts, nn.Linear(width, classes or width))


def lm_loss(model, ids, labels=None, **kw):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(ids, **kw)
        labels = ids if labels is None else labels
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def learn(loss, optimizer):
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def forever(loader):
    while True:
        yield from loader


class Photos(Dataset):
    def __init__(self, transform):
        from PIL import Image

        rng = np.random.default_rng(0)
        self.images = [
            Image.fromarray(rng.integers(0, 256, (480, 640, 3), dtype=np.uint8)) for _ in range(16)
        ]
        self.transform = transform

    def __len__(self):
        return 6400

    def __getitem__(self, i):
        return self.transform(self.images[i % 16]), i % 1000


# The fix gives 8%, as timed: fourteen workers are nearly fast enough, and the GPU is busy for 80% of a step.
@gpu_job(limiters="compute memory", rules="")
def photos_jittered_at_full_size(fixed: bool) -> Iterator[None]:
    """ColorJitter runs on the 640x480 photo before the crop; fixed: crop first, jitter the 224 crop.

    Expected: input-bound, GPU mostly idle waiting in the DataLoader although 14 workers run; best advice: make the
    per-sample transforms cheaper (the jitter before the crop), not blindly more workers; code: the transform list in
    photos_jittered_at_full_size / Photos.__getitem__. The fix gives 2-4x.
    """
    from torchvision import models
    from torchvision import transforms as T

    jitter, crop = T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandomResizedCrop(224)
    order = [crop, jitter] if fixed else [jitter, crop]
    data = Photos(
        T.Compose([*order, T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)])
    )
    loader = forever(DataLoader(data, 32, True, num_workers=14, pin_memory=True, persistent_workers=True))
    model = models.resnet18().cuda()
    optimizer = adamw(model)
    while True:
        images, labels = next(loader)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images.cuda(non_blocking=True)), labels.cuda(non_blocking=True))
        learn(loss, optimizer)
        yield


def tokenize_batch(texts):
    vocabulary = {w: i for i, w in enumerate(WORDS)}
    rows = []
    for text in texts:
        rows.append([vocabulary.get(w, 0) for w in re.findall(r"[a-z]+", text.lower())])
    longest = max(map(len, rows))
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])


def pad_encoded(rows):
    return pad_sequence(rows, batch_first=True)


@gpu_job(limiters="input", rules="GD101", functions="tokenize_batch")
def texts_tokenized_in_collate(fixed: bool) -> Iterator[None]:
    """collate_fn tokenizes with a regex and dict (rebuilt per batch) in the main process; fixed: encoded beforehand.

    Expected: host/input-bound, GPU idle while the main process runs tokenize_batch inside next(loader) with
    num_workers=0; advice: tokenize once ahead of time or move to workers; code: tokenize_batch. Gives about 2x.
    """
    rng = random.Random(0)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(200, 500))) for _ in range(640)]
    if fixed:
        vocabulary = {w: i for i, w in enumerate(WORDS)}
        texts = [torch.tensor([vocabulary[w] for w in text.split()]) for text in texts]
    collate = pad_encoded if fixed else tokenize_batch
    loader = forever(DataLoader(texts, 64, collate_fn=collate, pin_memory=True))
    model = SmallGPT(2, 512, 8).cuda()
    optimizer = adamw(model)
    while True:
        learn(lm_loss(model, next(loader).cuda(non_blocking=True)), optimizer)
        yield


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


@gpu_job(limiters="launch sync python mixed", rules="GD301 GD201 GD202 GD102", functions="log_auroc")
def auroc_computed_every_step(fixed: bool) -> Iterator[None]:
    """torchmetrics AUROC over all samples so far is computed at each step; fixed: update only, compute per epoch.

    Expected: host/launch-bound with syncs in torchmetrics' compute (per-class curves, sorting, growing state);
    advice: only update in the step, compute at the end of the epoch (or binned thresholds); code: log_auroc. 2x+.
    """
    from torchmetrics.classification import MulticlassAUROC

    model = mlp(2048, 4, 10).cuda()
    optimizer, metric = adamw(model), MulticlassAUROC(num_classes=10, validate_args=not fixed).cuda()
    x, y = torch.randn(2048, 2048, device="cuda"), torch.randint(0, 10, (2048,), device="cuda")

    def log_auroc(logits):
        metric.update(logits, y)
        return None if fixed else float(metric.compute())

    while True:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(x).float()
        learn(F.cross_entropy(logits, y), optimizer)
        log_auroc(logits.detach().softmax(1))
        yield


def log_histograms(model, log):
    for name, p in model.named_parameters():
        counts, edges = np.histogram(p.detach().cpu().numpy(), bins=64)
        log.write(json.dumps([name, counts.tolist(), edges.tolist()]) + "\n")


def log_histograms_on_gpu(model, log, step):
    counts = torch.stack([torch.histc(p.detach(), 64, -1, 1) for p in model.parameters()])
    if step % 50 == 49:
        log.write(json.dumps(counts.tolist()) + "\n")


@gpu_job(limiters="python sync copy mixed", rules="GD102 GD301 GD303 GD302", functions="log_histograms")
def weight_histograms_every_step(fixed: bool) -> Iterator[None]:
    """Logs histograms of all weights with numpy each step; fixed: histc on the GPU, read every 50 steps.

    Expected: host-bound: np.histogram on the CPU plus one blocking copy per parameter while the GPU idles; advice: log
    rarely / compute on the GPU; code: log_histograms. Gives 3x or more.
    """
    model = mlp(512, 8).cuda()
    optimizer, x = adamw(model), torch.randn(16384, 512, device="cuda")
    with tempfile.TemporaryFile("w") as log:
        for step in itertools.count():
            learn(model(x).square().mean(), optimizer)
            log_histograms_on_gpu(model, log, step) if fixed else log_histograms(model, log)
            yield


def save_checkpoint(model, path):
    torch.save(model.state_dict(), path)


@gpu_job(
    limiters="python copy sync mixed",
    rules="GD102 GD301 GD302 GD303 GD304 GD106",
    functions="save_checkpoint",
)
def checkpoint_every_third_step(fixed: bool) -> Iterator[None]:
    """Writes a 60 MB checkpoint in the training loop each third step; fixed: each 1000th.

    Expected: every third step stalls in torch.save (copies to the host and the file) while the GPU idles; advice: save
    less often or asynchronously; code: save_checkpoint. Gives 2x or more on the mean; the median step shows nothing.
    """
    model = mlp(1024, 14).cuda()
    optimizer, x = adamw(model), torch.randn(8192, 1024, device="cuda")
    with tempfile.TemporaryDirectory() as folder:
        for step in itertools.count(1):
            learn(model(x).square().mean(), optimizer)
            if step % (1000 if fixed else 3) == 0:
                save_checkpoint(model, os.path.join(folder, "last.pt"))
            yield


def update_ema(ema, model):
    for name, p in model.state_dict().items():
        ema[name].mul_(0.999).add_(p.cpu(), alpha=0.001)


@gpu_job(limiters="copy python sync mixed", rules="GD302 GD303 GD102 GD301", functions="update_ema")
def ema_weights_kept_on_cpu(fixed: bool) -> Iterator[None]:
    """The moving average of the weights lives on the CPU and is updated each step; fixed: on the GPU, foreach.

    Expected: each step copies 40 MB to pageable host memory tensor by tensor and averages on the CPU, GPU idle; advice:
    keep the EMA on the GPU (torch._foreach_lerp_); code: update_ema. Gives 2-4x.
    """
    model = mlp(1024, 10).cuda()
    optimizer, x = adamw(model), torch.randn(8192, 1024, device="cuda")
    ema = {n: p.clone() if fixed else p.cpu().clone() for n, p in model.state_dict().items()}
    while True:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).float().square().mean()
        learn(loss, optimizer)
        if fixed:
            torch._foreach_lerp_(list(ema.values()), list(model.state_dict().values()), 0.001)
        else:
            update_ema(ema, model)
        yield


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


@torch.no_grad()
def generate(model, ids, count, cached):
    pasts = [[] for _ in model.layers] if cached else None
    new = ids
    for _ in range(count):
        new = model(new if cached else ids, pasts)[:, -1].argmax(1, keepdim=True)
        ids = torch.cat((ids, new), 1)
    return ids


@gpu_job(limiters="compute memory", rules="")
def generation_without_a_cache(fixed: bool) -> Iterator[None]:
    """Generates 6 tokens and runs the whole prefix again for each; fixed: keeps keys and values.

    Expected: GPU-bound and busy, but almost all work is repeated; advice: use a KV cache; code: generate (and
    SmallGPT.forward). Gives 2-4x. (A tool sees good matmuls on a busy GPU; it may well miss this.)
    """
    model = SmallGPT(6, 1024, 16).cuda().to(torch.bfloat16).eval()
    ids = torch.randint(0, 8000, (16, 512), device="cuda")
    while True:
        generate(model, ids, 6, cached=fixed)
        yield


@gpu_job(limiters="memory compute", rules="")
def embedding_with_dense_gradients(fixed: bool) -> Iterator[None]:
    """A table of 4 million rows gets dense gradients and Adam; fixed: sparse=True with SparseAdam.

    Expected: GPU-bound, memory bandwidth: zeroing a 1 GB gradient and Adam over all rows for 16k used ones; advice:
    sparse gradients; code: where the table and its optimizer are made. Gives 2-6x.
    """
    table = nn.EmbeddingBag(4_000_000, 64, mode="mean", sparse=fixed).cuda()
    model = mlp(64, 3, 1, hidden=512).cuda()
    optimizer = adamw(model)
    optimizers = [
        optimizer,
        (torch.optim.SparseAdam if fixed else torch.optim.Adam)(table.parameters(), lr=1e-3),
    ]
    ids = torch.randint(0, 4_000_000, (1024, 16), device="cuda")
    while True:
        for o in optimizers:
            o.zero_grad(set_to_none=True)
        model(table(ids)).square().mean().backward()
        for o in optimizers:
            o.step()
        yield
