"""Ranks (gloo) with a step clock: `python -m tests.training.clock_job FOLDER WORLD FAULT RANK AT STEPS`.

From step AT, RANK has the FAULT: `loader` (batches take longer), `sleep` (in its model), `garbage` (it
keeps much, and collects), or `none`. The log is in FOLDER/log; what a rank says in FOLDER/said.RANK.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
import traceback
from pathlib import Path

import torch
import torch._dynamo  # an optimizer imports it: here once, and not in each rank
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

import tb_gpudiag
from tb_gpudiag.training import clock_sender, helper

# On a busy machine, a low priority would stall the tests.
helper.NICE = clock_sender.NICE = 0  # type: ignore[attr-defined]
clock_sender.SEND_EVERY_S = 0.4

WIDTH, ROWS, LAYERS = 128, 32, 3
USUAL_S, FAULT_S = 0.01, 0.02
GARBAGE = 300_000  # lists: collecting them takes about as long as FAULT_S
CLOSE_S = 100


class Batches(Dataset[torch.Tensor]):  # type: ignore[misc]
    """Batches that take USUAL_S to load, and longer with the fault."""

    def __init__(self, count: int, slow_from: int) -> None:
        self._count, self._slow_from = count, slow_from

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: int) -> torch.Tensor:
        time.sleep(USUAL_S + (FAULT_S if at >= self._slow_from else 0))
        return torch.rand(ROWS, WIDTH)


class Model(nn.Module):  # type: ignore[misc]
    """A few layers. sleep_s: how long it sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
        self.sleep_s = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.sleep_s:
            time.sleep(self.sleep_s)
        found: torch.Tensor = self.layers(x)
        return found


def main(folder: Path, rank: int, world: int, fault: str, at: int, steps: int) -> None:
    """Train one rank. fault: "none" for a healthy one."""
    with open(folder / f"said.{rank}", "wb") as said:
        os.dup2(said.fileno(), 1)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    torch.set_num_threads(1)
    gc.freeze()
    if world > 1:
        dist.init_process_group("gloo", f"file://{folder / 'store'}", rank=rank, world_size=world)
    inner = Model()
    model: nn.Module = nn.parallel.DistributedDataParallel(inner) if world > 1 else inner
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handler = tb_gpudiag.DiagnosisHandler(folder / "log")
    loader = DataLoader(Batches(steps, at if fault == "loader" else steps), batch_size=None)
    kept: list[object] = []
    with handler.step_clock(model, optimizer) as clock:
        for batch in clock(loader):
            has_fault = clock.number >= at
            inner.sleep_s = FAULT_S if fault == "sleep" and has_fault else 0.0
            if fault == "garbage" and has_fault:
                kept = kept or [[] for _ in range(GARBAGE)]
                gc.collect()
            _step(model, optimizer, batch)
    print("steps", clock.number)
    handler.close(CLOSE_S)
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


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
                main(folder, one, world, fault if one == rank else "none", at, steps)
                sys.stdout.flush()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
    return sum(os.wait()[1] != 0 for _ in range(world))


if __name__ == "__main__":
    place, ranks, what, *numbers = sys.argv[1:]
    sys.exit(run_ranks(Path(place), int(ranks), what, *map(int, numbers)))
