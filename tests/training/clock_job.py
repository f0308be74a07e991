"""Ranks (gloo) with a step clock: `python -m tests.training.clock_job FOLDER WORLD FAULT RANK AT STEPS`.

From step AT, RANK has the FAULT: `loader` (batches take longer), `sleep` (in its model), `garbage` (it
keeps much, and collects), or `none`. The log is in FOLDER/log; what a rank says in FOLDER/said.RANK. With a
fault, the job goes on until RANK has recorded it.

Everything is real but for the time that the clock reads: on a busy machine, real steps drift by themselves.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import re
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # an optimizer imports it: here once, and not in each rank
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

import tb_gpudiag
from tb_gpudiag.service.processes.child import Child
from tb_gpudiag.training import clock_sender, helper
from tests.patience import HANGS_S

# On a busy machine, a low priority would stall the tests.
helper.NICE = clock_sender.NICE = 0  # type: ignore[attr-defined]
clock_sender.SEND_EVERY_S = 0.4


class IdleClocking(Child):
    """A helper that takes no notice of other processes."""

    def __init__(self, _: str, **options: Any) -> None:
        super().__init__("tests.training.idle_clocking", **options)


clock_sender.Child = IdleClocking  # type: ignore[assignment, attr-defined]

WIDTH, ROWS, LAYERS = 128, 32, 3
USUAL_S, FAULT_S, NOISE = 0.01, 0.02, 0.05
GARBAGE = 300_000  # lists: collecting them takes about as long as FAULT_S
LOOK_EVERY, RECORDED_IN, MOST_STEPS = 50, 100, 20_000


class Time:
    """What the clock reads: it moves when the job sleeps or collects garbage, by what that should take."""

    def __init__(self, rank: int) -> None:
        self._now_ns, self._noise = 0, random.Random(rank)
        time.perf_counter_ns = lambda: self._now_ns  # this process is the rank's own

    def passes(self, seconds: float) -> None:
        self._now_ns += round(seconds * self._noise.gauss(1, NOISE) * 1e9)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        self.passes(seconds)


class Batches(Dataset[torch.Tensor]):  # type: ignore[misc]
    """Batches that take USUAL_S to load, and longer with the fault."""

    def __init__(self, count: int, slow_from: int, clock: Time) -> None:
        self._count, self._slow_from, self._time = count, slow_from, clock

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: int) -> torch.Tensor:
        self._time.sleep(USUAL_S + (FAULT_S if at >= self._slow_from else 0))
        return torch.rand(ROWS, WIDTH)


class Model(nn.Module):  # type: ignore[misc]
    """A few layers. sleep_s: how long it sleeps."""

    def __init__(self, clock: Time) -> None:
        super().__init__()
        self._time = clock
        self.layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
        self.sleep_s = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.sleep_s:
            self._time.sleep(self.sleep_s)
        found: torch.Tensor = self.layers(x)
        return found


def main(folder: Path, rank: int, world: int, fault: str, of_rank: int | None, at: int, steps: int) -> None:
    """Train one rank. fault: its own, "none" for a healthy one. of_rank: which rank has one."""
    with open(folder / f"said.{rank}", "wb") as said:
        os.dup2(said.fileno(), 1)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    torch.set_num_threads(1)
    gc.freeze()
    if world > 1:
        dist.init_process_group("gloo", f"file://{folder / 'store'}", rank=rank, world_size=world)
    handler = tb_gpudiag.DiagnosisHandler(folder / "log")
    end = steps
    for number in _train(handler, Time(rank), fault, at, in_job=world > 1):
        if of_rank is not None and number == end - RECORDED_IN:
            end += 0 if _is_recorded(folder, of_rank, world) else LOOK_EVERY
        if number == end:
            break
    print("steps", number)
    handler.close(HANGS_S)
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


def _train(
    handler: tb_gpudiag.DiagnosisHandler, now: Time, fault: str, at: int, *, in_job: bool
) -> Iterator[int]:
    """Train, and yield the number of each step once it is done."""
    inner = Model(now)
    model: nn.Module = nn.parallel.DistributedDataParallel(inner) if in_job else inner
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = Batches(MOST_STEPS, at if fault == "loader" else MOST_STEPS, now)
    kept = list[object]()
    with handler.step_clock(model, optimizer) as clock:
        gc.callbacks.append(lambda what, _: now.passes(FAULT_S) if kept and what == "start" else None)
        for batch in clock(DataLoader(batches, batch_size=None)):
            has_fault = clock.number >= at
            inner.sleep_s = FAULT_S if fault == "sleep" and has_fault else 0.0
            if fault == "garbage" and has_fault:
                kept = kept or [[] for _ in range(GARBAGE)]
                gc.collect()
            _step(model, optimizer, batch)
            yield clock.number


def _is_recorded(folder: Path, rank: int, world: int) -> bool:
    """Return whether the rank records since it is later than others. All ranks agree, and so
    take as many steps."""
    said = (folder / f"said.{rank}").read_text(encoding="utf-8")
    found = torch.tensor(float(re.search(rf"recording .*rank {rank} of {world}", said) is not None))
    dist.all_reduce(found, dist.ReduceOp.MIN)
    return bool(found)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()


def run_ranks(folder: Path, world: int, fault: str, rank: int, at: int, steps: int) -> int:
    """Run each rank in a fork, which need not import torch again. Return how many failed."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in range(world):
        if not os.fork():
            try:
                main(
                    folder,
                    one,
                    world,
                    fault if one == rank else "none",
                    None if fault == "none" else rank,
                    at,
                    steps,
                )
                sys.stdout.flush()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
    return sum(os.wait()[1] != 0 for _ in range(world))


if __name__ == "__main__":
    place, ranks, what, *numbers = sys.argv[1:]
    sys.exit(run_ranks(Path(place), int(ranks), what, *map(int, numbers)))
