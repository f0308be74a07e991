"""Jobs with texts, tables and games that run out of memory as in threads on forums that found the cause.

What the thread found helps, and what else makes the job fit in the same memory; both were run. Written down
before any of them was diagnosed.
"""

from __future__ import annotations

import collections
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, Block, Language, failing, loss_of, texts
from tests.truth.gpu_snapshot import Gpu


def _trained(model: nn.Module, rows: int, steps: int = 3, length: int = 64) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad])
    for _ in range(steps):
        loss_of(model, texts(rows, length)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


class _Encoder(nn.Module):
    """A vector for each token."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(256, 64), nn.LayerNorm(64)
        self.blocks = nn.Sequential(*(Block() for _ in range(blocks)))

    def forward(self, tokens: Any) -> Any:
        return self.norm(self.blocks(self.embed(tokens)))


@failing(
    Gpu(700 * MIB, scale=32),
    "other hooks inference larger",
    "shard checkpoint accumulate graph others expandable",
)
def logits_joined_by_a_trainer() -> None:
    """An evaluation without gradients joins the logits of all batches on the GPU before its metric."""
    model = Language(2)
    _trained(model, 8)
    model.eval()
    joined = None
    with torch.no_grad():
        for _ in range(32):
            logits = model(texts(8))
            joined = logits if joined is None else torch.cat([joined, logits])
        assert joined is not None
        joined.argmax(-1)


class _Adapted(nn.Module):
    """A frozen linear layer with a trained update of low rank beside it."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(requires_grad=False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Any) -> Any:
        return self.base(x) + self.up(self.down(x))


@failing(Gpu(1000 * MIB, scale=32), BATCH, "shard fused_optimizer graph inference others")
def adapters_before_checkpointing_was_on() -> None:
    """Only adapters are trained, and the activations of the frozen blocks do not fit."""
    model = Language(6).requires_grad_(requires_grad=False)
    for block in model.blocks:
        assert isinstance(block, Block)
        for name in ("attends", "up", "down"):
            setattr(block, name, _Adapted(getattr(block, name)))
    _trained(model, 16, length=96)


class _Written(nn.Module):
    """Attention as GPT-2 wrote it."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(64), nn.LayerNorm(64)
        self.qkv, self.joins = nn.Linear(64, 192), nn.Linear(64, 64)
        self.feed = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))

    def forward(self, x: Any, mask: Any) -> Any:
        rows, length, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(rows, length, 3, 4, 16).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(2, 3) / 4).masked_fill(mask, -1e4)
        x = x + self.joins((scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, width))
        return x + self.feed(self.after(x))


class _Padded(nn.Module):
    def __init__(self, blocks: int = 4) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(2048, 64), nn.Linear(64, 2048)
        self.blocks = nn.ModuleList(_Written() for _ in range(blocks))

    def forward(self, tokens: Any) -> Any:
        length = tokens.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


@failing(Gpu(1050 * MIB, scale=8), f"pad attention {BATCH}", "shard fused_optimizer graph inference others")
def gpt_padded_to_its_full_length() -> None:
    """Texts of a hundred tokens are padded to the length of the model, and a batch of a few does not fit."""
    model = _Padded()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        batch = [torch.randint(1, 2048, (int(torch.randint(60, 100, ())),)) for _ in range(4)]
        tokens = torch.stack([functional.pad(text, (0, 512 - len(text))) for text in batch])
        loss_of(model, tokens).backward()
        optimizer.step()
        optimizer.zero_grad()


class _Cached(nn.Module):
    """A decoder that keeps keys and values of what it has read."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(256, 64), nn.Linear(64, 256)
        self.qkv = nn.ModuleList(nn.Linear(64, 192) for _ in range(blocks))

    def forward(self, tokens: Any, past: Any) -> tuple[Any, Any]:
        x, kept = self.embed(tokens), []
        for layer, earlier in zip(self.qkv, past or [None] * len(self.qkv), strict=True):
            q, k, v = layer(x).chunk(3, -1)
            if earlier is not None:
                k, v = torch.cat([earlier[0], k], 1), torch.cat([earlier[1], v], 1)
            kept.append((k, v))
            x = x + functional.scaled_dot_product_attention(q, k, v, is_causal=earlier is None)
        return self.head(x[:, -1]), kept


def _continued(model: nn.Module, prompt: Any, sequences: int, length: int = 32) -> Any:
    tokens, past = prompt.repeat(sequences, 1), None
    out = [tokens]
    for _ in range(length):
        logits, past = model(tokens, past)
        tokens = torch.multinomial(logits.softmax(-1), 1)
        out.append(tokens)
    return torch.cat(out, 1)


@failing(Gpu(400 * MIB, scale=64), "inference", "shard checkpoint accumulate graph others expandable")
def a_hundred_continuations_of_a_prompt() -> None:
    """A few continuations of a prompt fit; a hundred are one batch of a hundred, with its keys and values."""
    model = _Cached().eval()
    with torch.no_grad():
        for sequences in (4, 8, 100):
            _continued(model, texts(1, 32), sequences)


@failing(Gpu(500 * MIB, scale=16), "inference", "shard checkpoint accumulate graph others expandable")
def all_texts_of_a_table_through_an_encoder() -> None:
    """All texts of a table are tokenized into one tensor, which goes through the encoder in one call."""
    encoder = _Encoder().eval()
    with torch.no_grad():
        encoder(texts(640))[:, 0]


@failing(
    Gpu(500 * MIB, scale=32), "other hooks inference", "shard checkpoint accumulate graph others expandable"
)
def vectors_of_tokens_left_on_the_gpu() -> None:
    """Sentences are encoded in batches, and the vectors of their tokens wait on the GPU to the end."""
    encoder, found = _Encoder().eval(), []
    for _ in range(36):
        with torch.no_grad():
            vectors = encoder(texts(32))
        found.extend(list(vectors))
    torch.stack([vectors.mean(0) for vectors in found])


@failing(Gpu(700 * MIB, scale=32), "giant inference", "shard checkpoint accumulate graph others expandable")
def sentences_compared_with_all_others() -> None:
    """After the sentences are encoded, one product gives the similarity of each with each."""
    encoder, found = _Encoder(1).eval(), []
    with torch.no_grad():
        for _ in range(16):
            found.append(encoder(texts(256, 8)).mean(1))
        vectors = functional.normalize(torch.cat(found), dim=1)
        similar = vectors @ vectors.T
        similar.topk(5)


@dataclass
class _Trial:
    rate: float
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: float


@failing(
    Gpu(900 * MIB, scale=32),
    "models before",
    "shard checkpoint accumulate precision graph inference others giant",
)
def trials_that_hold_their_trainers() -> None:
    """A hyperparameter search makes a model for each trial, and the trials before still hold theirs."""
    trials: list[_Trial] = []
    for rate in (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5):
        model = nn.Sequential(nn.Embedding(256, 256), Block(256), nn.Linear(256, 256))
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
        for _ in range(3):
            loss = loss_of(model, texts(4))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        trials.append(_Trial(rate, model, optimizer, loss.item()))
    min(trials, key=lambda trial: trial.loss)


def _checkpoint_file(model: nn.Module) -> io.BytesIO:
    """A file as an earlier run left it. Its arrays are NumPy's: they are not the GPU's."""
    rng = np.random.default_rng(0)

    def array(weight: Any) -> Any:
        return torch.from_numpy(rng.random(tuple(weight.shape), dtype=np.float32) / 100)

    named = dict(model.named_parameters())
    state = torch.optim.AdamW(named.values()).state_dict()
    state["state"] = {
        i: {
            "step": torch.from_numpy(np.ones((), np.float32)),
            "exp_avg": array(weight),
            "exp_avg_sq": array(weight),
        }
        for i, weight in enumerate(named.values())
    }
    file = io.BytesIO()
    torch.save({"model": {name: array(weight) for name, weight in named.items()}, "optimizer": state}, file)
    file.seek(0)
    return file


def _larger() -> nn.Module:
    return nn.Sequential(nn.Embedding(256, 320), *(Block(320) for _ in range(2)), nn.Linear(320, 256))


@failing(
    Gpu(1640 * MIB, scale=32), "load before", "checkpoint accumulate precision graph inference others giant"
)
def a_checkpoint_still_there_at_the_first_step() -> None:
    """Training from scratch fits; resumed, the first forward pass fails beside the checkpoint's tensors."""
    with torch.device("meta"):
        earlier = _larger()
    saved = torch.load(_checkpoint_file(earlier))
    model = _larger()
    optimizer = torch.optim.AdamW(model.parameters())
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    for _ in range(2):
        loss_of(model, texts(4)).backward()
        optimizer.step()
        optimizer.zero_grad()


@failing(Gpu(1200 * MIB, scale=64), BATCH, "shard fused_optimizer graph inference others giant")
def a_game_too_long_for_its_policy() -> None:
    """REINFORCE keeps the graph of each frame of eight games until they end, and long games do not fit."""
    policy = nn.Sequential(
        nn.Conv2d(1, 16, 8, 4),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2048, 3),
    )
    optimizer = torch.optim.Adam(policy.parameters())
    for frames in (12, 18, 14, 48):
        chosen, rewards = [], []
        for _ in range(frames):
            frame = torch.rand(8, 1, 80, 80)
            actions = torch.distributions.Categorical(logits=policy(frame))
            action = actions.sample()
            chosen.append(actions.log_prob(action))
            rewards.append((action == 1).float())
        returns = torch.stack(rewards).flip(0).cumsum(0).flip(0)
        optimizer.zero_grad()
        (-torch.stack(chosen) * (returns - returns.mean())).sum().backward()
        optimizer.step()


@failing(
    Gpu(700 * MIB, scale=64),
    "graph other hooks inference",
    "shard fused_optimizer checkpoint accumulate precision others giant expandable",
)
def states_of_an_agent_in_its_replay_memory() -> None:
    """The replay memory keeps the recurrent state of each step with the graph that made it."""
    sees, remembers, acts = nn.Linear(32, 64), nn.LSTMCell(64, 64), nn.Linear(64, 4)
    weights = [*sees.parameters(), *remembers.parameters(), *acts.parameters()]
    optimizer = torch.optim.Adam(weights)
    memory: collections.deque[Any] = collections.deque(maxlen=10_000)
    for _ in range(8):
        state = torch.zeros(32, 64), torch.zeros(32, 64)
        for _ in range(24):
            seen = torch.randn(32, 32)
            state = remembers(sees(seen).relu(), state)
            memory.append((seen, acts(state[0]).argmax(1), state))
        picked = [memory[int(i)] for i in torch.randint(0, len(memory), (8,))]
        hidden, cell = (torch.cat([state[part] for _, _, state in picked]).detach() for part in (0, 1))
        known = remembers(sees(torch.cat([seen for seen, _, _ in picked])).relu(), (hidden, cell))
        values = acts(known[0]).gather(1, torch.cat([action for _, action, _ in picked])[:, None])
        optimizer.zero_grad()
        (values - torch.randn(len(values), 1)).square().mean().backward()
        optimizer.step()


@failing(Gpu(900 * MIB, scale=32), "shard", "checkpoint accumulate graph inference others giant expandable")
def more_users_than_a_table_can_hold() -> None:
    """The table of items of a collaborative filter fits, and that of its users does not."""
    items, users = nn.Embedding(10_000, 64), nn.Embedding(120_000, 64)
    optimizer = torch.optim.SGD([*items.parameters(), *users.parameters()], lr=0.1)
    for _ in range(2):
        rated = users(torch.randint(0, 120_000, (256,))) * items(torch.randint(0, 10_000, (256,)))
        functional.mse_loss(rated.sum(1), torch.rand(256)).backward()
        optimizer.step()
        optimizer.zero_grad()


@failing(
    Gpu(400 * MIB, scale=32), "graph gradients", "shard fused_optimizer inference others giant expandable"
)
def windows_of_a_book_with_retained_graphs() -> None:
    """The state of an LSTM goes from window to window with its graph, which backward has to retain."""
    embed, reads, head = nn.Embedding(256, 64), nn.LSTM(64, 64, batch_first=True), nn.Linear(64, 256)
    optimizer = torch.optim.Adam([*embed.parameters(), *reads.parameters(), *head.parameters()])
    for windows in (2, 3, 2, 16):
        state = torch.zeros(1, 8, 64), torch.zeros(1, 8, 64)
        for _ in range(windows):
            tokens = texts(8, 33)
            out, state = reads(embed(tokens[:, :-1]), state)
            loss = functional.cross_entropy(head(out).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()


class _InContext(nn.Module):
    """Predicts rows of a table from all rows whose class is known."""

    def __init__(self, features: int = 20) -> None:
        super().__init__()
        self.row, self.label, self.head = nn.Linear(features, 64), nn.Embedding(5, 64), nn.Linear(64, 5)
        self.asks = nn.ModuleList(nn.MultiheadAttention(64, 4, batch_first=True) for _ in range(2))
        self.feeds = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(2)
        )

    def forward(self, known: Any, classes: Any, asked: Any) -> Any:
        context, x = (self.row(known) + self.label(classes))[None], self.row(asked)[None]
        for asks, feeds in zip(self.asks, self.feeds, strict=True):
            x = x + asks(x, context, context, need_weights=False)[0]
            x = x + feeds(x)
        return self.head(x[0])


@failing(
    Gpu(700 * MIB, scale=32),
    "inference giant",
    "shard fused_optimizer checkpoint accumulate graph others expandable",
)
def a_large_table_predicted_in_one_call() -> None:
    """A transformer for tables predicts a small validation set, and then a large test set in one call."""
    model = _InContext().eval()
    known, classes = torch.randn(500, 20), torch.randint(0, 5, (500,))
    with torch.inference_mode():
        for rows in (1000, 2000, 30_000):
            model(known, classes, torch.randn(rows, 20)).softmax(-1)
