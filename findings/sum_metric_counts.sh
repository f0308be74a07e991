#!/bin/bash
# torchmetrics 1.9.0 (torch 2.13.0, Python 3.11): SumMetric adds up in float32: a counter of samples stays at 16,777,216
# for good.
#
# A reader would guess: whole numbers that are added up stay exact, as with Python's int or a sum of int64 tensors.
#
# Seen: from 16,777,215 on, five updates with an int64 tensor of 1 give 16,777,216 five times, without a warning. A
# single number above that is rounded, too: 20,000,001 becomes 20,000,000. So samples or tokens per second that come
# from it are too low in long runs. set_dtype(torch.float64) counts on. MeanMetric has such a counter as its weight.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torchmetrics==1.9.0 torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torchmetrics import MeanMetric, SumMetric

LIMIT = 2**24


def counted(samples, start, more):
    samples.update(start)
    seen = []
    for _ in range(more):
        samples.update(torch.tensor(1))
        seen.append(int(samples.compute()))
    return seen


float32 = counted(SumMetric(), LIMIT - 1, 5)
float64 = counted(SumMetric().set_dtype(torch.float64), LIMIT - 1, 5)
once = SumMetric()
once.update(torch.tensor(20_000_001))
mean = MeanMetric()
mean.update(1.0, weight=LIMIT)
mean.update(1.0)
print("float32:", float32, "float64:", float64, "once:", int(once.compute()), "weight of a mean:", int(mean.weight))
assert float32 == [LIMIT] * 5 and float64[-1] == LIMIT + 4
assert int(once.compute()) == 20_000_000 and int(mean.weight) == LIMIT
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
