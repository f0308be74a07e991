"""What a step clock costs: the same steps with and without it, in turns of one loop.

Steps of one model take turns, because two models of the same size differ by more than a clock costs.
Time is that of the process on a core, of all its threads: another process that has the core does not count.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from tb_gpudiag.training.diagnosis_handler import DiagnosisHandler

LAYERS: Final = 6
SIZES: Final = ((128, 64), (320, 192))
"""Width and rows: steps of about 1 ms and 10 ms."""

SECONDS: Final = 40.0
TURN: Final = 5
"""Steps in a row of each loop."""


@dataclass(frozen=True)
class ClockCost:
    """Times per step of each turn, without and with the clock, in µs.

    What else runs on the machine only adds to some of them, so their lower quartiles are compared, and
    beside them the medians.
    """

    bare_us: list[float]
    timed_us: list[float]

    def quartile(self, which: int) -> tuple[float, float]:
        """Return that of the bare steps, and by how much that of the others is larger."""
        bare, timed = (statistics.quantiles(each, n=4)[which] for each in (self.bare_us, self.timed_us))
        return bare, timed - bare


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
    """What a clock has added to a loop. It can be taken away and put back."""

    def __init__(self, loop: Loop) -> None:
        self._where: list[Any] = [
            loop.model._forward_pre_hooks,
            loop.model._forward_hooks,
            loop.optimizer._optimizer_step_pre_hooks,
            loop.optimizer._optimizer_step_post_hooks,
        ]
        self._what = [dict(hooks) for hooks in self._where]
        self._callbacks = list(gc.callbacks)

    def put(self, there: bool) -> None:
        for hooks, what in zip(self._where, self._what, strict=True):
            hooks.clear()
            hooks.update(what if there else {})
        gc.callbacks[:] = self._callbacks if there else []


def cost(folder: Path, width: int, rows: int, seconds: float = SECONDS) -> ClockCost:
    """Train with and without our clock in turns."""
    torch.set_num_threads(1)
    loop = Loop(width, rows)
    with DiagnosisHandler(folder).step_clock(loop.model, loop.optimizer) as clock:
        return paired(loop, clock, seconds)


def paired(loop: Loop, clock: Callable[[Iterable[int]], Iterable[int]], seconds: float) -> ClockCost:
    """Let the bare loop and the clock's take turns. clock: wraps a loader."""
    hooks = _Hooks(loop)
    batches = {True: iter(clock(iter(int, 1))), False: iter(int, 1)}  # endless
    took_us: dict[bool, list[float]] = {True: [], False: []}
    end_s, number = time.perf_counter() + seconds, 0
    while time.perf_counter() < end_s:
        for with_clock in (True, False) if number % 2 else (False, True):
            hooks.put(with_clock)
            loop.step(next(batches[with_clock]))  # the first step of a turn is as long as the turn before
            began_ns = time.process_time_ns()
            for _ in range(TURN):
                loop.step(next(batches[with_clock]))
            took_us[with_clock].append((time.process_time_ns() - began_ns) / TURN / 1e3)
        number += 1
    hooks.put(True)
    warm = number // 10
    return ClockCost(took_us[False][warm:], took_us[True][warm:])


def table(found: Iterable[ClockCost]) -> str:
    """The costs as text."""
    lines = []
    for one in found:
        texts = []
        for name, which in (("lower quartile", 0), ("median", 1)):
            bare_us, more_us = one.quartile(which)
            texts.append(f"{name} {bare_us / 1e3:.2f} ms + {more_us:.1f} µs ({more_us / bare_us:.2%})")
        lines.append(f"{len(one.bare_us)} turns: {'; '.join(texts)}")
    return "\n".join(lines)
