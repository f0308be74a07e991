"""One rank of a small job on the CPU with a handler: `python handler_job.py RANK WORLD FOLDER STORE`.

Its log goes to stdout. After the log, it prints the verdicts that on_diagnosis got.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

import tb_gpudiag
from tb_gpudiag.training import helper_process

helper_process.COMMAND = (sys.executable, "-u", str(Path(__file__).with_name("eager_helper.py")))

WIDTH, ROWS = 128, 32
WAIT, WARMUP, ACTIVE, REPEAT = 2, 1, 4, 2
CLOSE_S = 100


def main(rank: int, world: int, folder: str, store: str) -> None:
    """Train and record, twice."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=world)
    model: nn.Module = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3)))
    if world > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    reports: list[object] = []
    handler = tb_gpudiag.DiagnosisHandler(folder, on_diagnosis=reports.append)
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


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
