"""Ordinary trainings that run out of memory, mostly by what a loop keeps or asks for."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import MIB, failing
from tests.truth.gpu_snapshot import Gpu


@failing(Gpu(700 * MIB, scale=16), "giant", "shard others expandable pad checkpoint accumulate inference")
def a_target_for_every_pair_of_states() -> None:
    """Values of shape [N, 1] minus targets of shape [N], in the update of a Q network."""
    online, target = (nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 6)) for _ in range(2))
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    for rows in (256, 512, 3072):
        states, following = torch.randn(rows, 24), torch.randn(rows, 24)
        actions, rewards = torch.randint(0, 6, (rows, 1)), torch.randn(rows)
        with torch.no_grad():
            wanted = rewards + 0.99 * target(following).max(1).values
        error = online(states).gather(1, actions) - wanted
        loss = torch.where(error.abs() < 1, 0.5 * error**2, error.abs() - 0.5).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@failing(Gpu(800 * MIB, scale=16), "giant accumulate", "shard others expandable pad checkpoint inference")
def edges_decoded_between_all_nodes() -> None:
    """An autoencoder of a graph predicts an edge for each pair of its nodes."""
    nodes = 2048
    features, edges = torch.randn(nodes, 32), torch.randint(0, nodes, (2, 8 * nodes))
    first, second = nn.Linear(32, 64), nn.Linear(64, 16)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()])

    def spread(x: Any) -> Any:
        return x + torch.zeros_like(x).index_add(0, edges[1], x[edges[0]]) / 8

    for _ in range(3):
        z = second(functional.relu(first(spread(features))))
        wanted = torch.zeros(nodes, nodes)
        wanted[edges[0], edges[1]] = 1
        loss = functional.binary_cross_entropy_with_logits(z @ z.T, wanted, pos_weight=torch.tensor(200.0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@failing(Gpu(700 * MIB, scale=16), "graph metrics", "shard others expandable pad giant inference")
def losses_listed_after_their_graphs_were_retained() -> None:
    """A VAE calls backward with retain_graph=True and lists the loss itself, so each step's graph stays."""
    encoder = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)
    )
    decoder = nn.Sequential(
        nn.ReLU(), nn.ConvTranspose2d(8, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 3, 3, 1, 1)
    )
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
    history = []
    for _ in range(40):
        images = torch.rand(8, 3, 32, 32)
        mean, spread = encoder(images).chunk(2, 1)
        drawn = decoder(mean + torch.randn_like(mean) * torch.exp(0.5 * spread))
        divergence = -0.5 * (1 + spread - mean.square() - spread.exp()).mean()
        loss = functional.mse_loss(drawn, images) + 0.1 * divergence
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        history.append(loss)
    print(f"mean loss {torch.stack(history).mean().item():.3f}")


@failing(Gpu(260 * MIB, scale=16), "graph inference hooks other", "shard others expandable pad giant")
def a_rollout_collected_with_its_graph() -> None:
    """PPO collects values and log probabilities with autograd on, and needs only their numbers later."""
    body = nn.Sequential(
        nn.Conv2d(4, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 4, 2, 1), nn.ReLU(), nn.Flatten()
    )
    actor, critic = nn.Linear(16 * 64, 6), nn.Linear(16 * 64, 1)
    optimizer = torch.optim.Adam([*body.parameters(), *actor.parameters(), *critic.parameters()])

    def judged(seen: Any) -> Any:
        hidden = body(seen)
        return torch.distributions.Categorical(logits=actor(hidden)), critic(hidden)[:, 0]

    for horizon in (8, 64):
        frames, actions, chances, values = [], [], [], []
        seen = torch.randn(8, 4, 32, 32)
        for _ in range(horizon):
            policy, value = judged(seen)
            frames.append(seen)
            actions.append(policy.sample())
            chances.append(policy.log_prob(actions[-1]))
            values.append(value)
            seen = torch.randn(8, 4, 32, 32)
        old, base = torch.stack(chances).detach(), torch.stack(values).detach()
        returns = torch.randn_like(base)
        for i in range(0, horizon, 4):
            policy, value = judged(torch.cat(frames[i : i + 4]))
            ratio = (policy.log_prob(torch.cat(actions[i : i + 4])) - old[i : i + 4].flatten()).exp()
            gain = (returns - base)[i : i + 4].flatten()
            loss = functional.mse_loss(value, returns[i : i + 4].flatten()) - (ratio * gain).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@failing(
    Gpu(300 * MIB, scale=16),
    "other hooks metrics",
    "graph shard others expandable pad giant checkpoint accumulate inference",
)
def masks_kept_for_the_score_of_the_epoch() -> None:
    """A segmentation keeps all masks of an epoch on the GPU for its score, without a graph."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3, padding=1)
    )
    optimizer = torch.optim.Adam(model.parameters())
    found, wanted = [], []
    for _ in range(40):
        images, masks = torch.randn(4, 3, 48, 48), torch.randint(0, 8, (4, 48, 48))
        logits = model(images)
        loss = functional.cross_entropy(logits, masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(logits.detach().softmax(1))
        wanted.append(masks)
    right = torch.cat(found).argmax(1) == torch.cat(wanted)
    print(f"accuracy {right.float().mean().item():.3f}")


@failing(
    Gpu(900 * MIB, scale=64),
    "cache larger other",
    "graph shard others expandable pad giant checkpoint accumulate inference",
)
def a_queue_of_negatives_that_only_grows() -> None:
    """A contrastive training joins the keys of each batch to its queue, and never drops old ones."""
    online = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128))
    momentum = copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.SGD(online.parameters(), lr=0.03, momentum=0.9)
    queue = functional.normalize(torch.randn(256, 128), dim=1)
    for _ in range(60):
        images = torch.randn(256, 64)
        queries = functional.normalize(online(images + 0.1 * torch.randn_like(images)), dim=1)
        with torch.no_grad():
            for slow, fast in zip(momentum.parameters(), online.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
            keys = functional.normalize(momentum(images), dim=1)
        near = (queries * keys).sum(1, keepdim=True)
        hard = (queries[:32] @ queue.T).topk(16, dim=1).values
        loss = functional.cross_entropy(
            torch.cat([near[:32], hard], 1) / 0.2, torch.zeros(32, dtype=torch.long)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue = torch.cat([queue, keys])


@failing(
    Gpu(540 * MIB, scale=32),
    "shard",
    "checkpoint accumulate precision graph others expandable pad giant inference",
)
def master_copies_of_half_precision_weights() -> None:
    """Weights in half precision, a copy of each in single precision, and the state of Adam for it."""
    layers = (layer for _ in range(4) for layer in (nn.Linear(512, 512), nn.GELU()))
    model = nn.Sequential(*layers, nn.Linear(512, 10)).bfloat16()
    master = [weight.detach().float().requires_grad_() for weight in model.parameters()]
    optimizer = torch.optim.AdamW(master, lr=1e-4)
    for _ in range(3):
        x, y = torch.randn(8, 512).bfloat16(), torch.randint(0, 10, (8,))
        functional.cross_entropy(model(x).float(), y).backward()
        for copied, weight in zip(master, model.parameters(), strict=True):
            copied.grad = weight.grad.float() if weight.grad is not None else None
            weight.grad = None
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for copied, weight in zip(master, model.parameters(), strict=True):
                weight.copy_(copied)


@failing(
    Gpu(1200 * MIB, scale=32),
    "models other",
    "shard checkpoint accumulate others expandable pad giant graph inference",
)
def clients_of_a_federation_with_their_models() -> None:
    """Each client trains a copy; copies and optimizers stay on the GPU until they are averaged."""
    shared = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    clients = []
    for _ in range(10):
        local = copy.deepcopy(shared)
        optimizer = torch.optim.Adam(local.parameters())
        for _ in range(2):
            x, y = torch.randn(16, 128), torch.randint(0, 10, (16,))
            optimizer.zero_grad()
            functional.cross_entropy(local(x), y).backward()
            optimizer.step()
        clients.append((local, optimizer))
    weights = zip(shared.parameters(), *(local.parameters() for local, _ in clients), strict=True)
    with torch.no_grad():
        for weight, *own in weights:
            weight.copy_(torch.stack(own).mean(0))


@failing(
    Gpu(700 * MIB, scale=16),
    "inference",
    "shard checkpoint accumulate others expandable pad giant graph",
)
def a_forecast_of_the_whole_test_set() -> None:
    """A forecaster trains on batches; after the epoch, all test windows go through it at once."""
    model = nn.Sequential(nn.Conv1d(8, 32, 3, padding=1), nn.ReLU())
    for i in range(3):
        model.extend([nn.Conv1d(32, 32, 3, padding=2 << i, dilation=2 << i), nn.ReLU()])
    model.extend([nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 24)])
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        for _ in range(4):
            windows, following = torch.randn(16, 8, 168), torch.randn(16, 24)
            optimizer.zero_grad()
            functional.l1_loss(model(windows), following).backward()
            optimizer.step()
        test, wanted = torch.randn(1024, 8, 168), torch.randn(1024, 24)
        model.eval()
        with torch.no_grad():
            print(f"error {functional.l1_loss(model(test), wanted).item():.3f}")
        model.train()


@failing(Gpu(980 * MIB, scale=32), "expandable pad accumulate", "shard others giant inference graph")
def clips_of_many_lengths() -> None:
    """Sounds of many lengths; features of each batch are kept in between, for a normalization."""
    first, second = nn.Conv1d(1, 32, 9, padding=4), nn.Conv1d(32, 32, 9, padding=4)
    head = nn.Linear(32, 10)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters(), *head.parameters()])
    kept = []
    for step in range(40):
        sounds = torch.randn(4, 1, 1000 + 125 * step)
        low = functional.gelu(first(sounds))
        kept.append(low.detach()[:, :, ::80].clone())
        high = functional.gelu(second(low))
        kept.append(high.detach()[:, :, ::80].clone())
        loss = functional.cross_entropy(head(high.mean(2)), torch.randint(0, 10, (4,)))
        optimizer.zero_grad()
        loss.backward()
        kept.append(high.detach()[:, :, 1::80].clone())
        optimizer.step()
