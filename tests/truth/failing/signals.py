"""Audio, and series of measurements."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing.job import BATCH, MIB, Block, failing
from tests.truth.gpu_snapshot import Gpu


@failing(Gpu(850 * MIB, scale=16), BATCH, "shard others expandable pad giant inference graph")
def a_speaker_who_does_not_pause() -> None:
    """Speech recognition on batches as long as their longest recording, and one recording lasts a minute."""
    model = nn.Sequential(
        *(
            nn.Sequential(
                nn.Conv1d(64, 64, 11, padding=5, groups=64),
                nn.Conv1d(64, 64, 1),
                nn.BatchNorm1d(64),
                nn.ReLU(),
            )
            for _ in range(6)
        ),
        nn.Conv1d(64, 29, 1),
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for seconds in (8, 11, 9, 12, 10, 62, 9):
        frames = seconds * 50
        sounds, letters = torch.randn(4, 64, frames), torch.randint(1, 29, (4, 40))
        likely = model(sounds).log_softmax(1).permute(2, 0, 1)
        loss = functional.ctc_loss(likely, letters, torch.full((4,), frames), torch.full((4,), 40))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


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


@failing(
    Gpu(310 * MIB, scale=32),
    "expandable pad",
    "checkpoint shard others graph",
)
def utterances_of_growing_length() -> None:
    """Recordings sorted by length are embedded; what is kept of each lands in the large blocks between."""
    encoder = nn.Sequential(nn.Linear(80, 256), nn.GELU(), nn.Linear(256, 64)).eval()
    kept = []
    with torch.inference_mode():
        for length in range(200, 3000, 60):
            hidden = encoder(torch.randn(length, 80))
            kept.append(hidden[:: length // 90].clone())
            del hidden


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


@failing(Gpu(300 * MIB, scale=32), "graph inference", "shard checkpoint accumulate others expandable giant")
def a_state_carried_through_a_stream() -> None:
    """A recurrent model reads a stream in parts; its state, and so the graph of all parts, is carried on."""
    model, head, state = nn.GRU(32, 128, batch_first=True), nn.Linear(128, 8), None
    right = 0
    for _ in range(60):
        found, state = model(torch.randn(8, 16, 32), state)
        right += int((head(found).argmax(-1) == 0).sum())
