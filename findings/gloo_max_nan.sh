#!/bin/bash
# torch 2.13.0 (CPU build, gloo, Python 3.11): the maximum over ranks has a NaN or loses it, by which rank has it and
# where in the tensor it is.
#
# A reader would guess: NaN, as torch.max and torch.maximum have it; or never NaN, as torch.fmax.
#
# Seen, ones but for a NaN in one place of one rank, all_reduce with MAX: of rank 0 it stays in the first half of the
# tensor and is lost in the second one; of rank 1 the other way round, and in a tensor of one number it is lost. All
# ranks agree, on 1.0. SUM has NaN always. So a maximum of gradient norms or losses over ranks is no check for NaN.
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


def stays(number, owner, size, place, operation):
    """Return whether a NaN in this place of the owner's tensor is there after an all_reduce."""
    tensor = torch.ones(size)
    if number == owner:
        tensor[place] = float("nan")
    dist.all_reduce(tensor, operation)
    return bool(tensor[place].isnan())


def rank(number):
    dist.init_process_group(
        "gloo", rank=number, world_size=2, init_method=f"file://{pathlib.Path('store').absolute()}",
        timeout=datetime.timedelta(seconds=60),
    )
    places = [(owner, size, place) for owner in (0, 1) for size, place in ((1, 0), (1000, 0), (1000, 999))]
    largest = [stays(number, *place, dist.ReduceOp.MAX) for place in places]
    total = [stays(number, *place, dist.ReduceOp.SUM) for place in places]
    print(f"rank {number}; owner, size, place and whether MAX has the NaN:", list(zip(places, largest)), flush=True)
    assert largest == [True, True, False, False, False, True] and all(total)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    assert torch.maximum(torch.tensor(1.0), torch.tensor(float("nan"))).isnan()
    torch.multiprocessing.spawn(rank, nprocs=2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
