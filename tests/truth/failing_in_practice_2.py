"""Jobs that run out of memory as people meet them: sound, graphs, series over time, shops and search.

Written by someone who had read none of the rules. Each expectation was checked by running the job as it is,
with each fix, and with what should not help.
"""

from __future__ import annotations

from queue import Queue
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import MIB, failing
from tests.truth.gpu_snapshot import Gpu


class _Residual(nn.Module):
    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.wide = nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation)
        self.narrow = nn.Conv1d(channels, channels, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return x + self.narrow(functional.leaky_relu(self.wide(functional.leaky_relu(x, 0.1)), 0.1))


@failing(
    Gpu(800 * MIB, scale=16),
    "checkpoint accumulate precision",
    "shard fused_optimizer others expandable inference graph giant",
)
def a_vocoder_trained_on_whole_sentences() -> None:
    """A vocoder makes the wave of whole sentences in training, not of short pieces of them."""
    stages: list[nn.Module] = [nn.Conv1d(80, 64, 7, padding=3)]
    for channels in (64, 32, 16):
        stages.append(nn.ConvTranspose1d(channels, channels // 2, 8, 4, 2))
        stages += [_Residual(channels // 2, dilation) for dilation in (1, 3)]
    model = nn.Sequential(*stages, nn.Conv1d(8, 1, 7, padding=3), nn.Tanh())
    optimizer = torch.optim.AdamW(model.parameters())
    for frames in (40, 60, 320):
        mels, waves = torch.randn(4, 80, frames), torch.rand(4, 1, 64 * frames) - 0.5
        optimizer.zero_grad()
        functional.l1_loss(model(mels), waves).backward()
        optimizer.step()


@failing(
    Gpu(600 * MIB, scale=16),
    "graph",
    "shard checkpoint others expandable giant inference accumulate",
)
def memory_of_nodes_through_a_day() -> None:
    """A temporal graph network retains all graphs; its nodes' memory has those of earlier batches."""
    update, score = nn.GRUCell(128, 64), nn.Linear(128, 1)
    optimizer = torch.optim.Adam([*update.parameters(), *score.parameters()])
    for _ in range(2):
        memory = torch.zeros(4000, 64)
        optimizer.zero_grad()
        for _ in range(12):
            sources, targets = torch.randint(0, 4000, (2, 3000))
            seen = torch.cat([memory[sources], memory[targets]], 1)
            meets = functional.binary_cross_entropy_with_logits(score(seen)[:, 0], torch.ones(3000))
            meets.backward(retain_graph=True)
            memory = memory.index_copy(0, sources, update(seen, memory[sources]))
        optimizer.step()


class _Convolution(nn.Module):
    """Of a graph, with a message along each edge."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.message, self.joins = nn.Linear(2 * width, width), nn.Linear(2 * width, width)

    def forward(self, x: Any, edges: Any) -> Any:
        sources, targets = edges
        messages = functional.relu(self.message(torch.cat([x[sources], x[targets]], 1)))
        received = torch.zeros_like(x).index_add(0, targets, messages)
        return functional.relu(self.joins(torch.cat([x, received], 1)))


class _GraphNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = _Convolution(), _Convolution(), nn.Linear(64, 7)

    def forward(self, x: Any, edges: Any) -> Any:
        return self.head(self.second(self.first(x, edges), edges))


@failing(
    Gpu(1000 * MIB, scale=16),
    "inference giant",
    "checkpoint accumulate shard graph set_to_none others expandable",
)
def the_whole_graph_at_test_time() -> None:
    """Training takes sampled parts of a graph; the test takes all of its nodes and edges at once."""
    features, edges = torch.randn(8000, 64), torch.randint(0, 8000, (2, 96000))
    labels, model = torch.randint(0, 7, (8000,)), _GraphNetwork()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(6):
        nodes = torch.randperm(8000)[:400]
        inside = torch.randint(0, 400, (2, 4800))
        optimizer.zero_grad()
        functional.cross_entropy(model(features[nodes], inside), labels[nodes]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        (model(features, edges).argmax(1) == labels).sum()


@failing(
    Gpu(500 * MIB, scale=16),
    "inputs other",
    "graph shard checkpoint accumulate others expandable giant inference",
)
def a_reader_faster_than_the_training() -> None:
    """A queue without a bound takes batches of clicks to the GPU, two for each that is trained on."""
    shop, dense = nn.EmbeddingBag(5000, 32), nn.Linear(200, 32)
    head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adagrad([*shop.parameters(), *dense.parameters(), *head.parameters()])
    batches: Queue[Any] = Queue()
    for _ in range(48):
        for _ in range(2):
            clicked = torch.randint(0, 2, (1024,)).float()
            batches.put((torch.randint(0, 5000, (1024, 26)), torch.randn(1024, 200), clicked))
        ids, numbers, clicked = batches.get()
        logits = head(torch.cat([shop(ids), dense(numbers)], 1))[:, 0]
        optimizer.zero_grad()
        functional.binary_cross_entropy_with_logits(logits, clicked).backward()
        optimizer.step()


@failing(
    Gpu(1300 * MIB, scale=32),
    "shard",
    "graph other metrics gradients set_to_none checkpoint accumulate expandable giant others",
)
def a_table_for_each_market() -> None:
    """Markets come one after the other, and Adam makes the state of a market's table in its first step."""
    markets = nn.ModuleList(nn.Embedding(12000, 32) for _ in range(12))
    head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam([*markets.parameters(), *head.parameters()], foreach=False)
    for step in range(36):
        users, items = markets[step // 3](torch.randint(0, 12000, (2, 512)))
        optimizer.zero_grad()
        likes = head(torch.cat([users, items], 1))[:, 0]
        functional.binary_cross_entropy_with_logits(likes, torch.rand(512).round()).backward()
        optimizer.step()


class _Series(nn.Module):
    """Layers that attend to the past of a series."""

    def __init__(self, layers: int = 3, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.embed, self.head = heads, nn.Linear(8, 64), nn.Linear(64, 1)
        self.layers = nn.ModuleList(nn.MultiheadAttention(64, heads, batch_first=True) for _ in range(layers))

    def forward(self, series: Any) -> Any:
        x, (rows, length, _) = self.embed(series), series.shape
        mask = torch.ones(length, length).triu(1).bool()
        mask = mask.repeat(rows * self.heads, 1, 1)
        for layer in self.layers:
            x = x + layer(x, x, x, attn_mask=mask, need_weights=False)[0]
        return self.head(x)[..., 0]


@failing(
    Gpu(700 * MIB, scale=8),
    "giant attention accumulate checkpoint precision",
    "shard fused_optimizer others expandable inference graph",
)
def a_mask_for_each_head_of_each_series() -> None:
    """A forecaster repeats its causal mask for every row and every head."""
    model = _Series()
    optimizer = torch.optim.AdamW(model.parameters())
    for rows in (1, 1, 8):
        series = torch.randn(rows, 513, 8)
        optimizer.zero_grad()
        functional.mse_loss(model(series[:, :-1]), series[:, 1:, 0]).backward()
        optimizer.step()


@failing(
    Gpu(620 * MIB, scale=32),
    "expandable other",
    "shard checkpoint accumulate graph others",
)
def a_backtest_of_shops_with_histories_that_differ() -> None:
    """A backtest reads histories of many lengths, and keeps a forecast of each group of shops between."""
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
    forecasts = []
    with torch.no_grad():
        for group in range(40):
            weeks = 20 + 51 * group % 56
            windows = torch.randn(600, weeks).unfold(1, 8, 1)
            forecasts.append(model(windows)[:, -8:].clone())


@failing(
    Gpu(700 * MIB, scale=16),
    "giant inference",
    "shard checkpoint accumulate others expandable graph other",
)
def every_word_of_a_question_with_every_word_of_the_texts() -> None:
    """A late interaction scores all words of all questions against all words of all passages."""
    embed = nn.EmbeddingBag(1000, 64)
    with torch.inference_mode():
        passages = functional.normalize(embed(torch.randint(0, 1000, (200 * 64, 3))), dim=1)
        for questions in (2, 4, 32):
            words = functional.normalize(embed(torch.randint(0, 1000, (questions * 32, 3))), dim=1)
            scores = torch.einsum("qid,pjd->qpij", words.view(questions, 32, 64), passages.view(200, 64, 64))
            scores.amax(3).sum(2).topk(10)
