#!/bin/bash
# torch 2.13.0 (CPU build, gloo, Python 3.11): mse_loss of sharded DTensors has gradients that are too large by the
# number of ranks, and for uneven shards another value.
#
# A reader would guess: the loss and the gradients of the whole tensors, as of any operator that DTensor has a rule for.
#
# Seen, two ranks: for 4 rows the loss is right and each gradient twice as large; huber_loss and smooth_l1_loss do the
# same. Each rank takes the mean of its shard, the loss is the mean of these (Partial(avg)), and the backward pass
# divides by the size of the shard. So for 3 rows, in shards of 2 and 1, the third row weighs as much as two: the loss
# is 5.75, not 4.67, and the gradients are 1.5 and 3 times as large. l1_loss and ((a - b) ** 2).mean() are right.
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
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

LOSSES = {
    "mse_loss": F.mse_loss, "huber_loss": F.huber_loss, "smooth_l1_loss": F.smooth_l1_loss,
    "l1_loss": F.l1_loss, "by hand": lambda a, b: ((a - b) ** 2).mean(),
}


def compare(loss, rows, mesh):
    """Return the loss of plain and of sharded tensors, and by what the gradients of the latter are larger."""
    start, target = torch.arange(1.0, rows + 1)[:, None], torch.zeros(rows, 1)
    start[-1] = 3.0
    plain = start.clone().requires_grad_()
    value = loss(plain, target)
    value.backward()
    sharded = distribute_tensor(start, mesh, [Shard(0)]).requires_grad_()
    sharded_value = loss(sharded, distribute_tensor(target, mesh, [Shard(0)]))
    sharded_value.backward()
    factors = sharded.grad.full_tensor() / plain.grad
    return [round(x, 4) for x in (value.item(), sharded_value.full_tensor().item(), *factors.flatten().tolist())]


def rank(number):
    dist.init_process_group(
        "gloo", rank=number, world_size=2, init_method=f"file://{pathlib.Path('store').absolute()}",
        timeout=datetime.timedelta(seconds=60),
    )
    mesh = init_device_mesh("cpu", (2,))
    for name, loss in LOSSES.items():
        even, uneven = compare(loss, 4, mesh), compare(loss, 3, mesh)
        if number == 0:
            print(f"{name}: plain, sharded loss and the factors of 4 rows {even}, of 3 rows {uneven}", flush=True)
        wrong = name not in ("l1_loss", "by hand")
        assert even[0] == even[1] and even[2:] == [2.0 if wrong else 1.0] * 4
        assert (uneven[0] != uneven[1]) == wrong and uneven[2:] == ([1.5, 1.5, 3.0] if wrong else [1.0] * 3)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
