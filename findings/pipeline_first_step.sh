#!/bin/bash
# torch 2.13.0 (CPU build, gloo, Python 3.11): the first step of a pipeline schedule runs each stage, and the loss, once
# more than it has microbatches: the first stage on its first microbatch, the others on memory that nothing was written
# to.
#
# A reader would guess: every step has one forward pass, one send and one receive for each microbatch and neighbour. If
# the stages have to tell each other shapes, they do it with meta tensors.
#
# Seen, two stages, four microbatches (ScheduleGPipe): in the first step each stage runs five times and the loss, too,
# and a rank has seven sends and seven receives; in the second step four of each. The extra pass computes: BatchNorm
# counts five batches, and keeps the statistics of the extra one, which in a later stage is torch.empty (seen in the
# source). So hooks that count tokens are ahead for good, and a recording of the first step has work and messages that
# no other has.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import datetime
import pathlib

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.profiler import ProfilerActivity, profile


def rank(number):
    dist.init_process_group(
        "gloo", rank=number, world_size=2, init_method=f"file://{pathlib.Path('store').absolute()}",
        timeout=datetime.timedelta(seconds=60),
    )
    layer, losses = torch.nn.BatchNorm1d(8, momentum=0.1), []

    def loss(output, target):
        losses.append(1)
        return torch.nn.functional.mse_loss(output, target)

    schedule = ScheduleGPipe(PipelineStage(layer, number, 2, torch.device("cpu")), 4, loss_fn=loss)
    batch, steps = torch.ones(8, 8), []
    for _ in range(2):
        ran, layer.num_batches_tracked[...] = len(losses), 0
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            schedule.step(batch) if number == 0 else schedule.step(target=batch)
        if not steps and number == 0:  # four batches of ones make 0.3439, five 0.4095
            torch.testing.assert_close(layer.running_mean, torch.full((8,), 1 - 0.9**5))
        names = [event.name for event in profiler.events()]
        messages = (names.count("gloo:send"), names.count("gloo:recv"))
        steps.append((int(layer.num_batches_tracked), len(losses) - ran, *messages))
    print(f"rank {number}; batches of BatchNorm, losses, sends, receives by step: {steps}", flush=True)
    assert steps == [(5, 5 * number, 7, 7), (4, 4 * number, 4, 4)]
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
