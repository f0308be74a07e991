"""What a handler costs a training loop: steps after a recording with torch's handler, with ours, without any.

The three take turns in one loop, because two loops of the same code differ by more than a handler costs.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

from tb_gpudiag.training.diagnosis_handler import DiagnosisHandler

WIDTH, ROWS, LAYERS = 256, 64, 6
WARMUP, ACTIVE = 1, 3
AFTER_S: Final = 6.0
"""Train this long after a recording: longer than its diagnosis takes, so that the whole cost is measured."""
ROUNDS: Final = 7
END_S: Final = 10.0

NONE, TORCHS, OURS = NAMES = "no profiler", "torch's handler", "DiagnosisHandler"


@dataclass(frozen=True)
class Cost:
    """Steps after the recordings with one handler.

    step_s: median over the rounds of the mean step. lost_s: how much longer the steps of AFTER_S take than as
    many steps with torch's handler in the same round: median, lowest and highest round.
    """

    name: str
    step_s: float
    lost_s: tuple[float, float, float]


def costs(folder: Path) -> tuple[list[Cost], int]:
    """Train with each handler in turn. Return the costs, and how many recordings were diagnosed."""
    torch.set_num_threads(1)
    reports: list[object] = []
    ours = DiagnosisHandler(folder / "ours", on_diagnosis=reports.append)
    handlers: dict[str, Any] = {
        NONE: None,
        TORCHS: tensorboard_trace_handler(str(folder / "torchs")),
        OURS: ours,
    }
    train = _Training()
    rounds: list[dict[str, float]] = []
    try:
        for number in range(ROUNDS + 1):
            order = NAMES if number % 2 else NAMES[::-1]
            rounds.append({name: _step_s(train, handlers[name]) for name in order})
    finally:
        ours.close(END_S)
    del rounds[0]  # it starts the helper process
    return [_cost(name, rounds) for name in NAMES], len(reports)


def _cost(name: str, rounds: list[dict[str, float]]) -> Cost:
    lost_s = sorted((figures[name] / figures[TORCHS] - 1) * AFTER_S for figures in rounds)
    step_s = statistics.median(figures[name] for figures in rounds)
    return Cost(name, step_s, (statistics.median(lost_s), lost_s[0], lost_s[-1]))


class _Training:
    """A small model. A call trains it for one step."""

    def __init__(self) -> None:
        self._model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01)
        self._batch = torch.rand(ROWS, WIDTH)

    def __call__(self) -> None:
        self._optimizer.zero_grad()
        self._model(self._batch).square().mean().backward()
        self._optimizer.step()


def _step_s(train: _Training, handler: Any) -> float:
    """Record once, then train for AFTER_S. Return the mean time of a step after the recording."""
    with _recording(handler) as profiler:
        for _ in range(WARMUP + ACTIVE):
            train()
            if profiler is not None:
                profiler.step()
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < AFTER_S:
        train()
        steps += 1
    return (time.perf_counter() - began) / steps


@contextlib.contextmanager
def _recording(handler: Any) -> Iterator[Any]:
    if handler is None:
        yield None
        return
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=WARMUP, active=ACTIVE, repeat=1),
        on_trace_ready=handler,
        record_shapes=True,
    ) as profiler:
        yield profiler


def table(found: list[Cost]) -> str:
    """The costs as text."""
    lines = [f"{'':18}{'step':>9}  {'lost per recording':>30}  {'at one a minute':>15}"]
    for one in found:
        median, lowest, highest = (x * 1e3 for x in one.lost_s)
        lost = f"{median:.0f} ms ({lowest:.0f} to {highest:.0f})"
        lines.append(f"{one.name:18}{one.step_s * 1e3:6.2f} ms  {lost:>30}  {median / 60e3:>15.2%}")
    return "\n".join(lines)
