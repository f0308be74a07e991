"""Small jobs on the CPU with a handler: `python handler_job.py FOLDER WORLD...`, of so many ranks.

Each rank records to FOLDER/WORLD/log. It says in FOLDER/WORLD/said.RANK: its log, and then the verdicts that
on_diagnosis got.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from pathlib import Path

import torch
import torch._dynamo  # an optimizer imports it: here once, and not in each rank
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

import tb_gpudiag
from tb_gpudiag.training import helper

helper.NICE = 0  # on a busy machine, a low priority would stall the tests

WIDTH, ROWS = 128, 32
WAIT, WARMUP, ACTIVE, REPEAT = 2, 1, 4, 2
CLOSE_S = 100


def main(rank: int, world: int, folder: Path) -> None:
    """Train and record, twice."""
    with open(folder / f"said.{rank}", "wb") as said:
        os.dup2(said.fileno(), 1)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group("gloo", f"file://{folder / 'store'}", rank=rank, world_size=world)
    model: nn.Module = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3)))
    if world > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    reports: list[object] = []
    handler = tb_gpudiag.DiagnosisHandler(folder / "log", on_diagnosis=reports.append)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=REPEAT),
        on_trace_ready=handler,
        record_shapes=True,
    ) as profiler:
        for _ in range((WAIT + WARMUP + ACTIVE) * REPEAT):
            loss = model(torch.rand(ROWS, WIDTH)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
    handler.close(CLOSE_S)
    for report in reports:
        print("callback", report.trace.path, len(report.steps))  # type: ignore[attr-defined]
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


def run_ranks(world: int, folder: Path) -> int:
    """Run each rank in a fork, which need not import torch again. Return how many failed."""
    folder.mkdir(parents=True)
    for rank in range(world):
        if not os.fork():
            try:
                main(rank, world, folder)
                sys.stdout.flush()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
    return sum(os.wait()[1] != 0 for _ in range(world))


if __name__ == "__main__":
    sys.exit(sum(run_ranks(int(world), Path(sys.argv[1], world)) for world in sys.argv[2:]))
