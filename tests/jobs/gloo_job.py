"""Small DDP jobs on the CPU, recorded: `python gloo_job.py WORLD FOLDER FAULT...`, each to FOLDER/FAULT/log.

FAULT: none; loader (rank 1 waits in its loader); work (rank 2 computes on larger batches).
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # an optimizer imports it: here once, and not in each rank
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

WIDTH, ROWS = 256, 64
WAIT, WARMUP, ACTIVE = 3, 1, 6
LOADER_S = 0.1
LARGER = 16


class Batches:
    """Random batches. The loader of the slow rank takes its time for each."""

    def __init__(self, rows: int, delay_s: float) -> None:
        self._rows, self._delay_s = rows, delay_s

    def __len__(self) -> int:
        return WAIT + WARMUP + ACTIVE

    def __getitem__(self, number: int) -> Any:
        if self._delay_s:
            time.sleep(self._delay_s)
        return torch.rand(self._rows, WIDTH)


def main(rank: int, world: int, folder: Path, fault: str, store: Path) -> None:
    """Train and record."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=world)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = ROWS * LARGER if (fault, rank) == ("work", 2) else ROWS
    delay_s = LOADER_S if (fault, rank) == ("loader", 1) else 0.0
    batches = iter(torch.utils.data.DataLoader(Batches(rows, delay_s), batch_size=None))
    dist.barrier()
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1),
        on_trace_ready=tensorboard_trace_handler(str(folder), worker_name=f"rank{rank}"),
        record_shapes=True,
    ) as profiler:
        for _ in range(WAIT + WARMUP + ACTIVE):
            loss = model(next(batches)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
    dist.barrier()
    dist.destroy_process_group()


def run_ranks(world: int, folder: Path, fault: str) -> int:
    """Run each rank in a fork, which need not import torch again. Return how many failed."""
    folder.mkdir(parents=True)
    for rank in range(world):
        if not os.fork():
            try:
                main(rank, world, folder / "log", fault, folder / "store")
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
    return sum(os.wait()[1] != 0 for _ in range(world))


if __name__ == "__main__":
    sys.exit(sum(run_ranks(int(sys.argv[1]), Path(sys.argv[2], fault), fault) for fault in sys.argv[3:]))
