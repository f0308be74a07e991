#!/bin/bash
# torch 2.13.0 (CPU build, gloo, two ranks, Python 3.11): torch.distributed.checkpoint takes the tensors that all ranks
# have from different ranks, and what is no tensor from rank 0. A loaded state may be one that no rank had.
#
# A reader would guess: plain tensors under the same name are saved by rank 0, or by each rank for itself; if they
# differ, that is an error, or each rank gets its own back.
#
# Seen, rank r saves r in four tensors and in a number: afterwards both ranks load 0, 1, 0, 1 as the tensors, and the
# number of rank 0. Tensors of the same name are taken to be copies, and saving is spread over the ranks. So a random
# state, the place of a data loader, local BatchNorm statistics or weights that have drifted apart come back mixed,
# without a word. Name such things by rank.
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
import torch.distributed.checkpoint as dcp
import torch.multiprocessing


def state(value):
    return {f"weight {number}": torch.full((4,), float(value)) for number in range(4)} | {"position": value}


def rank(number):
    dist.init_process_group(
        "gloo", rank=number, world_size=2, init_method=f"file://{pathlib.Path('store').absolute()}",
        timeout=datetime.timedelta(seconds=60),
    )
    dcp.save(state(number), checkpoint_id="saved")
    loaded = state(-1)
    dcp.load(loaded, checkpoint_id="saved")
    from_ranks = [int(loaded[f"weight {index}"][0]) for index in range(4)]
    print(f"rank {number} loads tensors of ranks {from_ranks}, number of rank {loaded['position']}", flush=True)
    assert sorted(from_ranks) == [0, 0, 1, 1] and loaded["position"] == 0
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
