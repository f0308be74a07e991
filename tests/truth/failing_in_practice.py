"""Jobs that run out of memory as people meet them: language models, tasks learnt together, and services.

Written by someone who had read none of the rules. Each expectation was checked by running the job as it is,
with each fix, and with what should not help.
"""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import MIB, Block, failing, texts
from tests.truth.gpu_snapshot import Gpu


def _feed_forward(layers: int, width: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers)))


@failing(
    Gpu(700 * MIB, scale=16),
    "other hooks inference",
    "shard checkpoint accumulate others expandable giant graph",
)
def last_tokens_that_keep_their_batch() -> None:
    """Answers are embedded for a reward model; the last token of each is a view of all its tokens."""
    encoder = nn.Sequential(nn.Embedding(256, 64), Block(), Block()).eval()
    embeddings = []
    with torch.no_grad():
        for _ in range(48):
            hidden = encoder(texts(32, 128))
            embeddings.append(hidden[:, -1])
        torch.cat(embeddings)


@failing(
    Gpu(2050 * MIB, scale=64),
    "models before",
    "checkpoint accumulate others expandable giant inference graph",
)
def the_optimizer_of_the_stage_before() -> None:
    """A model is fine-tuned with a new optimizer, while the one of its pretraining is still there."""
    model = _feed_forward(6, 512)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        corrupted, tokens = torch.randn(16, 512), torch.randn(16, 512)
        optimizer.zero_grad()
        functional.mse_loss(model(corrupted), tokens).backward()
        optimizer.step()
    tuned = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for _ in range(3):
        labels = torch.randint(0, 512, (16,))
        tuned.zero_grad()
        functional.cross_entropy(model(torch.randn(16, 512)), labels).backward()
        tuned.step()


def _interrupted() -> io.BytesIO:
    """The file that an interrupted training left: weights, their average, the optimizer's state."""
    model, file = _feed_forward(6, 512), io.BytesIO()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(16, 512)).square().mean().backward()
    optimizer.step()
    weights = model.state_dict()
    average = {name: weight.clone() for name, weight in weights.items()}
    torch.save({"model": weights, "average": average, "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    return file


@failing(
    Gpu(2200 * MIB, scale=64),
    "load before",
    "checkpoint accumulate others expandable giant inference graph",
)
def training_resumed_beside_its_checkpoint() -> None:
    """What torch.load read onto the GPU stays there while the training goes on."""
    file = _interrupted()
    model = _feed_forward(6, 512)
    optimizer = torch.optim.AdamW(model.parameters())
    saved = torch.load(file)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(16, 512)).square().mean().backward()
        optimizer.step()


class _Experts(nn.Module):
    """Tokens go to one of the experts by a mask of tokens by experts by places, as in GShard."""

    def __init__(self, experts: int = 8, width: int = 64) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) / 8)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) / 8)

    def forward(self, x: Any) -> Any:
        tokens = x.flatten(0, 1)
        gates = self.router(tokens).softmax(-1)
        chosen = functional.one_hot(gates.argmax(-1), gates.shape[1])
        places = 2 * len(tokens) // gates.shape[1]
        place = ((chosen.cumsum(0) - 1) * chosen).clamp(max=places - 1)
        dispatch = functional.one_hot(place, places).float() * chosen[..., None]
        combine = dispatch * gates[..., None]
        inputs = torch.einsum("sec,sd->ecd", dispatch, tokens)
        outputs = functional.gelu(inputs @ self.up) @ self.down
        return x + torch.einsum("sec,ecd->sd", combine, outputs).view_as(x)


@failing(
    Gpu(1250 * MIB, scale=8),
    "giant accumulate checkpoint",
    "shard fused_optimizer others expandable inference graph pad",
)
def tokens_sent_to_experts_by_a_mask() -> None:
    """A mixture of experts is trained with a mask of all tokens by all experts by all places."""
    embed, head = nn.Embedding(256, 64), nn.Linear(64, 256)
    model = nn.Sequential(embed, _Experts(), Block(), _Experts(), head)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        tokens = texts(32, 65)
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()


@failing(
    Gpu(420 * MIB, scale=16),
    "graph gradients metrics",
    "shard checkpoint accumulate others expandable giant inference",
)
def norms_that_balance_three_tasks() -> None:
    """GradNorm weighs three tasks by the norms of their gradients, and its norms are kept for a plot."""
    trunk = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
    heads = nn.ModuleList(nn.Linear(256, classes) for classes in (10, 5, 2))
    weights = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([*trunk.parameters(), *heads.parameters(), weights])
    history = []
    for _ in range(14):
        features = trunk(torch.randn(1024, 64))
        losses = torch.stack([head(features).square().mean() for head in heads])
        norms = torch.stack(
            [
                torch.autograd.grad(one, list(trunk[2].parameters()), create_graph=True)[0].norm()
                for one in weights * losses
            ]
        )
        optimizer.zero_grad()
        (weights.detach() * losses).sum().backward(retain_graph=True)
        balance = (norms - norms.mean().detach()).abs().sum()
        weights.grad = torch.autograd.grad(balance, weights)[0]
        optimizer.step()
        history.append(norms)


@failing(
    Gpu(1000 * MIB, scale=16),
    "inference accumulate",
    "checkpoint shard fused_optimizer others expandable graph giant",
)
def pages_through_a_frozen_eye() -> None:
    """A frozen vision tower reads all tiles of a batch of documents at once; a language model learns."""
    tower = nn.Sequential(nn.Linear(588, 128), Block(128), Block(128), nn.AdaptiveAvgPool2d((4, 128)))
    tower.requires_grad_(False)
    projector, language = nn.Linear(128, 64), nn.Sequential(Block(), nn.Linear(64, 256))
    optimizer = torch.optim.AdamW([*projector.parameters(), *language.parameters()])
    for pages in (1, 2, 6):
        tiles, answers = torch.randn(4 * pages * 6, 64, 588), texts(4, pages * 24)
        optimizer.zero_grad()
        seen = projector(tower(tiles)).view(4, pages * 24, 64)
        functional.cross_entropy(language(seen).flatten(0, 1), answers.flatten()).backward()
        optimizer.step()


class _Reranker:
    """A service that takes a new version of its model while it answers."""

    def __init__(self) -> None:
        self.model = self.read(1)

    def read(self, version: int) -> nn.Module:
        torch.manual_seed(version)
        return _feed_forward(8, 512).eval()

    def take(self, version: int) -> None:
        self.model = self.read(version)

    @torch.inference_mode()
    def answer(self, question: Any) -> list[float]:
        return self.model(question).mean(1).tolist()


@failing(
    Gpu(780 * MIB, scale=64),
    "models load before",
    "shard checkpoint accumulate others expandable giant inference graph",
)
def a_new_version_read_beside_the_old_one() -> None:
    """A service reads a new model before it lets go of the old one."""
    service = _Reranker()
    for request in range(30):
        if request == 20:
            service.take(2)
        service.answer(torch.randn(32, 512))


@failing(
    Gpu(230 * MIB, scale=16),
    "other cache",
    "graph shard checkpoint accumulate others expandable giant",
)
def callers_who_have_hung_up() -> None:
    """A service that transcribes calls keeps what it has heard of each, also of those that are over."""
    encoder = nn.Sequential(nn.Linear(80, 64), Block(), Block()).eval()
    heard: dict[int, Any] = {}
    with torch.inference_mode():
        for request in range(112):
            caller = request // 8
            encoded = encoder(torch.randn(1, 512, 80))
            before = heard.get(caller, encoded[:, :0])
            heard[caller] = torch.cat([before, encoded], 1)
