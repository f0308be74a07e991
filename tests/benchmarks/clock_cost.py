"""What a step clock costs: the same steps with and without it, in turns of one loop.

Steps of one model take turns, because two models of the same size differ by more than a clock costs.
Time is that of the process on a core, of all its threads: another process that has the core does not count.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from tb_gpudiag.training import outliers
from tb_gpudiag.training.diagnosis_handler import DiagnosisHandler

LAYERS: Final = 6
SIZES: Final = ((128, 64), (320, 192))
"""Width and rows: steps of about 1 ms and 10 ms."""

SECONDS: Final = 60.0
TURN_S: Final = 0.05
"""Of each loop. A turn has several steps whose phases are timed, also where those of most are not."""


@dataclass(frozen=True)
class ClockCost:
    """What a clock adds to a step, as shares of it, one of each pair of turns. step_ms: without the clock."""

    step_ms: float
    shares: list[float]

    @property
    def share(self) -> tuple[float, float, float]:
        """Return the median of the pairs, and between what it is with 95% confidence.

        What else runs on the machine makes single pairs useless, and the median of many little worse.
        """
        ordered, count = sorted(self.shares), len(self.shares)
        off = round(0.98 * math.sqrt(count))  # the median is the binomial distribution's: 1.96 deviations
        return statistics.median(ordered), ordered[count // 2 - off], ordered[count // 2 + off]


class Loop:
    """A model that trains one step per call."""

    def __init__(self, width: int, rows: int) -> None:
        self.model = nn.Sequential(*(nn.Linear(width, width) for _ in range(LAYERS)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self._batch = torch.rand(rows, width)

    def step(self, _: int) -> None:
        self.optimizer.zero_grad()
        self.model(self._batch).square().mean().backward()
        self.optimizer.step()


class _Hooks:
    """What a clock has added to a loop. It can be taken away and put back, as it was then."""

    def __init__(self, loop: Loop) -> None:
        self._where: list[Any] = [
            loop.model._forward_pre_hooks,
            loop.model._forward_hooks,
            loop.optimizer._optimizer_step_pre_hooks,
            loop.optimizer._optimizer_step_post_hooks,
        ]
        self._callbacks = gc.callbacks.copy()
        self._what: list[dict[int, Any]] | None = None  # while it is away

    def put(self, there: bool) -> None:
        if there is (self._what is None):
            return
        if there:
            for hooks, what in zip(self._where, self._what or [], strict=True):
                hooks.update(what)
            self._what = None
        else:
            self._what = [dict(hooks) for hooks in self._where]
            for hooks in self._where:
                hooks.clear()
        gc.callbacks[:] = self._callbacks if there else []


def cost(folder: Path, width: int, rows: int, seconds: float = SECONDS) -> ClockCost:
    """Train with and without our clock in turns."""
    torch.set_num_threads(1)
    outliers.SLOW = math.inf  # type: ignore[misc]  # the first step of a turn is no slow one
    loop = Loop(width, rows)
    with DiagnosisHandler(folder).step_clock(loop.model, loop.optimizer) as clock:
        return paired(loop, clock, seconds)


def paired(loop: Loop, clock: Callable[[Iterable[int]], Iterable[int]], seconds: float) -> ClockCost:
    """Let the bare loop and the clock's take turns. clock: wraps a loader."""
    hooks = _Hooks(loop)
    batches = {True: iter(clock(iter(int, 1))), False: iter(int, 1)}  # endless

    def turn(with_clock: bool, steps: int) -> float:
        """Return the ns per step of a turn."""
        hooks.put(with_clock)
        loop.step(next(batches[with_clock]))  # the first step of a turn is as long as the turn before
        began_ns = time.process_time_ns()
        for _ in range(steps):
            loop.step(next(batches[with_clock]))
        return (time.process_time_ns() - began_ns) / steps

    steps = max(2, round(TURN_S * 1e9 / min(turn(with_clock=True, steps=50) for _ in range(20))))
    end_s = time.perf_counter() + seconds
    bare_ns: list[float] = []
    shares: list[float] = []
    while time.perf_counter() < end_s:
        order = (True, False) if len(shares) % 2 else (False, True)
        took_ns = {with_clock: turn(with_clock, steps) for with_clock in order}
        bare_ns.append(took_ns[False])
        shares.append(took_ns[True] / took_ns[False] - 1)
    hooks.put(True)
    return ClockCost(statistics.median(bare_ns) / 1e6, shares)


def table(found: Iterable[ClockCost]) -> str:
    """The costs as text."""
    lines = []
    for one in found:
        share, low, high = one.share
        step = f"{one.step_ms:.2f} ms + {share * one.step_ms * 1e3:.1f} µs"
        lines.append(f"{step}: {share:.2%} ({low:.2%} to {high:.2%}), {len(one.shares)} pairs")
    return "\n".join(lines)
