"""What a handler costs a training loop: steps without a profiler, with torch's handler, and with ours.

Steps are compared outside of the recorded ones: there, the diagnosis of the last recording runs.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

from tb_gpudiag.training.diagnosis_handler import DiagnosisHandler

WIDTH, ROWS, LAYERS = 256, 64, 6
WAIT, WARMUP, ACTIVE, CYCLES = 600, 1, 3, 2
ROUNDS: Final = 6
END_S: Final = 2.0
"""A diagnosis that takes longer is stopped, so that the next loop does not run next to it."""

NAMES: Final = ("no profiler", "torch's handler", "DiagnosisHandler")


@dataclass(frozen=True)
class Cost:
    """Steps of one loop, over all rounds, relative to the steps with torch's handler in the same round.

    wall, cpu: medians over the rounds, and the lowest and highest round. cpu is that of the training thread.
    """

    name: str
    step_s: float
    wall: tuple[float, float, float]
    cpu: tuple[float, float, float]


def costs(folder: Path) -> tuple[list[Cost], int]:
    """Run the loops in turn. Return their costs, and how many recordings were diagnosed."""
    torch.set_num_threads(1)
    reports: list[object] = []
    rounds: list[dict[str, tuple[float, float]]] = []
    for number in range(ROUNDS):
        figures = {}
        for name in NAMES if number % 2 else NAMES[::-1]:
            figures[name] = _loop(name, folder, reports.append)
        rounds.append(figures)
    return [_cost(name, rounds) for name in NAMES], len(reports)


def _cost(name: str, rounds: list[dict[str, tuple[float, float]]]) -> Cost:
    wall, cpu = (
        sorted(figures[name][i] / figures["torch's handler"][i] for figures in rounds) for i in (0, 1)
    )
    step_s = statistics.median(figures[name][0] for figures in rounds)
    return Cost(
        name, step_s, (statistics.median(wall), wall[0], wall[-1]), (statistics.median(cpu), cpu[0], cpu[-1])
    )


def _loop(name: str, folder: Path, on_diagnosis: Callable[[object], None]) -> tuple[float, float]:
    """Train. Return wall time and CPU time of an undisturbed step, after the first recording."""
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.rand(ROWS, WIDTH)
    wall, cpu = [], []
    with _profiler(name, folder, on_diagnosis) as profiler:
        for number in range((WAIT + WARMUP + ACTIVE) * CYCLES):
            began = time.perf_counter(), time.thread_time()
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            if profiler is not None:
                profiler.step()
            cycle, step = divmod(number, WAIT + WARMUP + ACTIVE)
            if cycle and step < WAIT - 1:  # the last step of the wait prepares the profiler
                wall.append(time.perf_counter() - began[0])
                cpu.append(time.thread_time() - began[1])
    return statistics.mean(_undisturbed(wall)), statistics.mean(_undisturbed(cpu))


def _undisturbed(values: list[float]) -> list[float]:
    """Leave out the slowest tenth: other programs cause it."""
    return sorted(values)[: len(values) * 9 // 10]


@contextlib.contextmanager
def _profiler(name: str, folder: Path, on_diagnosis: Callable[[object], None]) -> Iterator[Any]:
    if name == "no profiler":
        yield None
        return
    ours = DiagnosisHandler(folder / "ours", on_diagnosis=on_diagnosis)
    handler: Any = ours if name == "DiagnosisHandler" else tensorboard_trace_handler(str(folder / "torchs"))
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE),
        on_trace_ready=handler,
        record_shapes=True,
    ) as profiler:
        yield profiler
    ours.close(END_S)


def table(found: list[Cost]) -> str:
    """The costs as text."""
    lines = [f"{'':18}{'step':>9}  {'wall time':>22}  {'CPU time of the thread':>24}"]
    for one in found:
        shown = [f"{x[0]:.3f} ({x[1]:.3f} to {x[2]:.3f})" for x in (one.wall, one.cpu)]
        lines.append(f"{one.name:18}{one.step_s * 1e3:6.2f} ms  {shown[0]:>22}  {shown[1]:>24}")
    return "\n".join(lines)
