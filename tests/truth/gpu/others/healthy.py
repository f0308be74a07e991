"""Healthy jobs: nothing in them is worth a change (the last part of the file: five more faults)."""

import itertools
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from tests.truth.job import gpu_job


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norm2(x))


class SmallGPT(nn.Module):
    def __init__(self, layers, width, heads, vocab=8000):
        super().__init__()
        self.token, self.position = nn.Embedding(vocab, width), nn.Embedding(2048, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, ids, run=None):
        x = self.token(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = run(layer, x) if run else layer(x)
        return self.head(self.norm(x))


def mlp(width, depth, classes=None, hidden=None):
    parts = []
    for _ in range(depth):
        parts += [nn.Linear(width, hidden or width), nn.GELU()] + (
            [nn.Linear(hidden, width)] if hidden else []
        )
    return nn.Sequential(*parts, nn.Linear(width, classes or width))


def lm_loss(model, ids, **kw):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return F.cross_entropy(model(ids, **kw)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def learn(loss, optimizer):
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def forever(loader):
    while True:
        yield from loader


def forever(loader):
    while True:
        yield from loader


class Clips(Dataset):
    """Small samples from host memory with a little numpy work."""

    def __init__(self, count, shape):
        self.count, self.data = count, np.random.default_rng(0).integers(0, 256, (64, *shape), dtype=np.uint8)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        clip = self.data[i % 64]
        return torch.from_numpy(clip[:, :, ::-1].copy() if i % 2 else clip), i % 1000


@gpu_job()
def resnet_with_a_good_loader(fixed: bool) -> Iterator[None]:
    """Healthy. channels_last ResNet-50 in bfloat16, uint8 images from workers, pinned, normalized on the GPU.

    Expected: GPU-bound convolutions and batch norm; a tool may hint at torch.compile or fused batch norm, no more.
    """
    from torchvision import models

    torch.backends.cudnn.benchmark = True
    model = models.resnet50().cuda().to(memory_format=torch.channels_last)
    loader = DataLoader(
        Clips(12800, (3, 224, 224)), 96, True, num_workers=8, pin_memory=True, persistent_workers=True
    )
    optimizer = adamw(model)
    for images, labels in forever(loader):
        images = (
            images.cuda(non_blocking=True).float().div_(255).contiguous(memory_format=torch.channels_last)
        )
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels.cuda(non_blocking=True))
        learn(loss, optimizer)
        yield


@gpu_job()
def gpt_training_tuned(fixed: bool) -> Iterator[None]:
    """Healthy. bfloat16 autocast GPT with flash attention, fused AdamW, foreach clipping, loss read each 20th step.

    Expected: GPU-bound matmuls; a tool may hint at torch.compile or at the autocast casts.
    """
    model = SmallGPT(6, 1024, 16).cuda()
    optimizer, ids = adamw(model), torch.randint(0, 8000, (16, 1024), device="cuda")
    for step in itertools.count():
        loss = lm_loss(model, ids)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 19:
            loss.item()
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
def prefill_inference(fixed: bool) -> Iterator[None]:
    """Healthy. Scores long prompts with a bfloat16 GPT in inference mode; results copied to pinned memory.

    Expected: GPU-bound matmuls and flash attention; a tool may hint at torch.compile / FP8.
    """
    model = SmallGPT(8, 2048, 16).cuda().to(torch.bfloat16).eval()
    ids, host = (
        torch.randint(0, 8000, (8, 1024), device="cuda"),
        torch.empty(8, dtype=torch.long, pin_memory=True),
    )
    while True:
        with torch.inference_mode():
            host.copy_(model(ids)[:, -1].argmax(1), non_blocking=True)
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
def graph_network_with_index_select(fixed: bool) -> Iterator[None]:
    """Healthy. Message passing with index_select and index_add over a fixed graph.

    Expected: GPU-bound by memory traffic and atomics, inherent to the graph; a tool may hint at sorted/CSR segments.
    """
    nets = nn.ModuleList(nn.Linear(128, 128) for _ in range(4)).cuda()
    optimizer, x = adamw(nets), torch.randn(100000, 128, device="cuda")
    source, target = torch.randint(0, 100000, (2, 1500000), device="cuda")
    while True:
        h = x
        for net in nets:
            h = h + torch.zeros_like(h).index_add(0, target, net(h).index_select(0, source)).relu()
        learn(h.square().mean(), optimizer)
        yield


# As timed, the GPU is busy for 65% of a step: launches limit it, inside cuDNN.
@gpu_job(allowed="GD201")
def lstm_of_cudnn(fixed: bool) -> Iterator[None]:
    """Healthy. Two-layer cuDNN LSTM in bfloat16 over 96 time steps.

    Expected: GPU-bound in cuDNN's sequential kernels (inherent to the recurrence); low occupancy is a hint at most.
    """
    model = nn.LSTM(1024, 1024, 2, batch_first=True).cuda().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(128, 96, 1024, device="cuda", dtype=torch.bfloat16)
    while True:
        learn(model(x)[0].float().square().mean(), optimizer)
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


def recompute(layer, x):
    return checkpoint(layer, x, use_reentrant=False)


@gpu_job()
def recomputation_that_is_needed(fixed: bool) -> Iterator[None]:
    """Healthy. Activation checkpointing under a limit of 8 GB, which the activations would not fit otherwise.

    Expected: GPU-bound; the recomputed forward is needed for memory: not to be advised away without that caveat.
    """
    torch.cuda.set_per_process_memory_fraction(8 * 2**30 / torch.cuda.get_device_properties(0).total_memory)
    model = SmallGPT(8, 1024, 16).cuda()
    optimizer, ids = adamw(model), torch.randint(0, 8000, (16, 1024), device="cuda")
    while True:
        learn(lm_loss(model, ids, run=recompute), optimizer)
        yield


@gpu_job()
def vision_transformer_with_a_rare_log(fixed: bool) -> Iterator[None]:
    """Healthy. torchvision ViT-B/16 in bfloat16; the running loss stays on the GPU and is read each 25th step.

    Expected: GPU-bound matmuls, attention, layer norms; a tool may hint at torch.compile or the autocast casts.
    """
    from torchvision import models

    model = models.vit_b_16().cuda()
    optimizer, images = adamw(model), torch.randn(128, 3, 224, 224, device="cuda")
    labels, running = torch.randint(0, 1000, (128,), device="cuda"), torch.zeros((), device="cuda")
    for step in itertools.count():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        learn(loss, optimizer)
        running.lerp_(loss.detach(), 0.1)
        if step % 25 == 24:
            print("loss", running.item())
        yield


# Five more faults.


@gpu_job(limiters="compute memory", rules="")
def recomputation_that_is_not_needed(fixed: bool) -> Iterator[None]:
    """Every layer is checkpointed although 80 GB hold the activations many times over; fixed: no checkpointing.

    Expected: GPU-bound; a fourth of the work is the repeated forward inside backward; advice: no (or selective)
    checkpointing, memory is free; code: recompute. Gives 1.25-1.35x.
    """
    model = SmallGPT(6, 1024, 16).cuda()
    optimizer, ids = adamw(model), torch.randint(0, 8000, (8, 1024), device="cuda")
    while True:
        learn(lm_loss(model, ids, run=None if fixed else recompute), optimizer)
        yield


@gpu_job(limiters="copy sync mixed", rules="GD302 GD303 GD301 GD304", functions="forward_offloaded")
def activations_saved_on_cpu(fixed: bool) -> Iterator[None]:
    """autograd.graph.save_on_cpu moves all saved tensors to the host and back; fixed: they stay on the GPU.

    Expected: copy-bound: blocking pageable copies both ways in forward and backward; advice: drop the offloading (the
    memory is there) or pin_memory=True; code: forward_offloaded. Gives 5x or more.
    """
    model = mlp(1024, 4).cuda()
    optimizer, x = adamw(model), torch.randn(2048, 1024, device="cuda")

    def forward_offloaded():
        with torch.autograd.graph.save_on_cpu(pin_memory=False):
            return model(x).square().mean()

    while True:
        learn(model(x).square().mean() if fixed else forward_offloaded(), optimizer)
        yield


def run_cells(cell, x):
    state, outs = None, []
    for t in range(x.shape[1]):
        state = cell(x[:, t], state)
        outs.append(state[0])
    return torch.stack(outs, 1)


@gpu_job(limiters="launch", rules="GD201 GD202", functions="run_cells")
def lstm_cell_in_a_loop(fixed: bool) -> Iterator[None]:
    """Runs nn.LSTMCell over 40 time steps in Python; fixed: nn.LSTM (cuDNN).

    Expected: launch-bound: small kernels, GPU mostly idle, host busy dispatching; advice: nn.LSTM (or CUDA graphs);
    code: run_cells. Gives 2-5x.
    """
    model = (nn.LSTM(512, 512, batch_first=True) if fixed else nn.LSTMCell(512, 512)).cuda()
    optimizer, x = adamw(model), torch.randn(128, 40, 512, device="cuda")
    while True:
        learn((model(x)[0] if fixed else run_cells(model, x)).square().mean(), optimizer)
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


@gpu_job(limiters="input", rules="GD101 GD106")
def loader_workers_restarted_each_epoch(fixed: bool) -> Iterator[None]:
    """An epoch has only 5 batches and the 8 workers start anew each time; fixed: persistent_workers=True.

    Expected: each fifth step stalls in DataLoader.__iter__ (forking workers, first batch) while the GPU idles; advice:
    persistent_workers=True (or longer epochs); code: where the loader is made. Gives 2-4x on the mean, median fine.
    """
    data = Clips(5 * 64, (3, 128, 128))
    loader = DataLoader(data, 64, True, num_workers=8, pin_memory=True, persistent_workers=fixed)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, 4), nn.ReLU(), nn.Conv2d(64, 256, 3, 2), nn.ReLU(), nn.Flatten(2)
    ).cuda()
    optimizer = adamw(model)
    for images, labels in forever(loader):
        learn(model(images.cuda(non_blocking=True).float() / 255).square().mean(), optimizer)
        yield
