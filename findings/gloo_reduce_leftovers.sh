#!/bin/bash
# torch 2.13.0 (CPU build, gloo, Python 3.11): `dist.reduce` to one rank overwrites a part of the tensors of the other
# ranks with sums that are not theirs to have.
#
# A reader would guess: only the receiving rank's tensor changes; the others still have what they gave.
#
# Seen, 1,000 numbers, 1 of rank 0 and 2 of rank 1: reduced to rank 0, rank 1 has 500 of its 2 and 500 of the sum 3;
# reduced to rank 1, rank 0 has 500 of its 1 and 500 of 3. Of one number, rank 1 keeps its own and rank 0 has the sum,
# so a test with a scalar tells nothing. Whoever reduces losses per class to rank 0 for the log and goes on with them
# has a mixture.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import collections
import datetime
import pathlib

import torch
import torch.distributed as dist
import torch.multiprocessing


def left(number, size, receiver):
    """Return how often which value is in this rank's tensor after a reduce to the receiver."""
    tensor = torch.full((size,), number + 1.0)
    dist.reduce(tensor, receiver)
    return dict(collections.Counter(tensor.tolist()))


def rank(number):
    dist.init_process_group(
        "gloo", rank=number, world_size=2, init_method=f"file://{pathlib.Path('store').absolute()}",
        timeout=datetime.timedelta(seconds=60),
    )
    for receiver in (0, 1):
        one, many = left(number, 1, receiver), left(number, 1000, receiver)
        print(f"to rank {receiver}, rank {number} has of one number: {one} of 1,000: {many}", flush=True)
        if number == receiver:
            assert one == {3.0: 1} and many == {3.0: 1000}
        else:
            assert one == {2.0 if number == 1 else 3.0: 1} and many == {number + 1.0: 500, 3.0: 500}
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
