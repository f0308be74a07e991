#!/bin/bash
# torchmetrics 1.9.0 (torch 2.13.0, gloo, two ranks, Python 3.11): the metrics of a MetricCollection that share
# one state gather it once for each metric.
#
# A reader would guess: precision, recall and F1 are one compute group, so they update once and are gathered once.
#
# Seen: compute() of one such metric makes 4 barriers and 8 all_gathers, for four states of 5 numbers: the sizes, then
# the values. compute() of the collection makes 12 and 24, though compute_groups says that all three are one group. So
# groups save updates, not communication.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torchmetrics==1.9.0 torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import collections
import datetime
import pathlib

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.profiler import ProfilerActivity, profile
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassF1Score, MulticlassPrecision, MulticlassRecall


def collectives(metric):
    predicted = torch.randint(0, 5, (20,))
    metric.update(predicted, predicted)
    metric.update(predicted, predicted)
    with profile(activities=[ProfilerActivity.CPU]) as recording:
        metric.compute()
    names = (event.name for event in recording.events() if event.name.startswith("c10d::"))
    return dict(collections.Counter(names))


def rank(number):
    dist.init_process_group(
        "gloo", rank=number, world_size=2, init_method=f"file://{pathlib.Path('store').absolute()}",
        timeout=datetime.timedelta(seconds=60),
    )
    one = collectives(MulticlassPrecision(5))
    three = MetricCollection([MulticlassPrecision(5), MulticlassRecall(5), MulticlassF1Score(5)])
    all_three = collectives(three)
    if number == 0:
        print("one:", one, "three:", all_three, "groups:", three.compute_groups, flush=True)
    assert one == {"c10d::barrier": 4, "c10d::allgather_": 8}
    assert all_three == {name: 3 * count for name, count in one.items()} and len(three.compute_groups) == 1
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
