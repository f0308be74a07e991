"""Four ranks (gloo), one slow once in 200 steps: `python -m tests.training.slow_step_job FOLDER RANK`.

They train until that rank has recorded such a step, and 1,000 steps at most. All times are real.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch
import torch._dynamo  # an optimizer imports it: here once, and not in each rank
import torch.distributed as dist
from torch import nn

import tb_gpudiag
from tb_gpudiag.training import clock_sender, helper
from tests.patience import HANGS_S

WORLD, EVERY, STEPS, LOOK_EVERY = 4, 200, 1_000, 50
LOADED_S, SLOW_S = 0.01, 0.3


def refresh_price_list() -> None:
    """What one rank does now and then."""
    time.sleep(SLOW_S)


def batches(steps: int) -> Iterator[torch.Tensor]:
    """Yield batches that are loaded as fast as they are needed."""
    for _ in range(steps):
        time.sleep(LOADED_S)
        yield torch.rand(32, 64)


def recordings(folder: Path) -> Iterator[Path]:
    """Yield those that have the fault. On a busy machine, other steps are slow as well."""
    for path in (folder / "log").glob("*.pt.trace.json"):
        if refresh_price_list.__name__ in path.read_text(encoding="utf-8"):
            yield path


def main(folder: Path, rank: int, slow_rank: int) -> None:
    """Train one rank."""
    helper.NICE = clock_sender.NICE = 0  # type: ignore[attr-defined]  # else a busy machine stalls it
    logging.basicConfig(level=logging.INFO, format="%(message)s", filename=folder / f"said.{rank}")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder / 'store'}", rank=rank, world_size=WORLD)
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handler = tb_gpudiag.DiagnosisHandler(folder / "log")
    with handler.step_clock(model, optimizer) as clock:
        for batch in clock(batches(STEPS)):
            if rank == slow_rank and clock.number % EVERY == EVERY - 1:
                refresh_price_list()
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if clock.number % LOOK_EVERY == 0:
                done = torch.tensor(float(rank != slow_rank or any(recordings(folder))))
                dist.all_reduce(done, dist.ReduceOp.MIN)
                if done:
                    break
    handler.close(HANGS_S)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    for one in range(WORLD):
        if not os.fork():
            try:
                main(Path(sys.argv[1]), one, int(sys.argv[2]))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
    sys.exit(sum(os.wait()[1] != 0 for _ in range(WORLD)))
