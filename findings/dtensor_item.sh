#!/bin/bash
# torch 2.13.0 (CPU build, gloo, Python 3.11): .item() of a DTensor is what this rank alone has, and raises or
# warns nothing: sum, mean, maximum and norm of a sharded tensor differ from rank to rank.
#
# A reader would guess: a DTensor is the whole tensor, so .item(), bool() and float() reduce over the ranks first,
# as argmax().item() does, or raise.
#
# Seen, 0 to 15 in two shards: sum().item() is 28 and 92, max().item() 7 and 15, `if (tensor > 10).any()` is taken
# on one rank only, without a collective. argmax().item() is 15 on both, and so is max() if full_tensor() comes
# first.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import datetime
import json
import pathlib

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode


def rank(number):
    dist.init_process_group(
        "gloo", rank=number, world_size=2, init_method=f"file://{pathlib.Path('store').absolute()}",
        timeout=datetime.timedelta(seconds=60),
    )
    mesh = init_device_mesh("cpu", (2,))
    tensor = distribute_tensor(torch.arange(16.0), mesh, [Shard(0)])
    with CommDebugMode() as collectives:
        seen = [tensor.sum().item(), tensor.mean().item(), float(tensor.max()), bool((tensor > 10).any())]
    assert collectives.get_total_counts() == 0
    seen += [tensor.argmax().item(), tensor.max().full_tensor().item()]
    pathlib.Path(f"{number}.json").write_text(json.dumps(seen))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
    one, two = (json.loads(pathlib.Path(f"{number}.json").read_text()) for number in range(2))
    print(one, two, sep="\n")
    assert one == [28.0, 3.5, 7.0, False, 15, 15.0] and two == [92.0, 11.5, 15.0, True, 15, 15.0]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
