#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): both FLOP counters have 0 for a matrix times a vector, and the right number
# for a vector times a matrix; the profiler's counts of `mul` are those of the first operand.
#
# A reader would guess: both products are 2 m n operations, and a product of tensors that are broadcast has one
# operation for each element of the result.
#
# Seen, 32 x 64: 0 for matrix @ vector, 4,096 for vector @ matrix, in FlopCounterMode and with with_flops=True.
# With with_flops=True one times 1,000 elements is 1 operation, 1,000 times one are 1,000, and outer of 32 and 64
# elements 32, not 2,048.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode


def counts(action):
    with FlopCounterMode(display=False) as mode:
        action()
    with profile(activities=[ProfilerActivity.CPU], with_flops=True, record_shapes=True) as profiler:
        action()
    return mode.get_total_flops(), sum(row.flops for row in profiler.key_averages())


matrix, long, short, one, many = (torch.ones(*sizes) for sizes in ((32, 64), (64,), (32,), (1,), (1000,)))
times_vector, vector_times = counts(lambda: matrix @ long), counts(lambda: short @ matrix)
print("matrix @ vector, vector @ matrix:", times_vector, vector_times)
assert times_vector == (0, 0) and vector_times == (4096, 4096)
first, second, outer = (counts(action)[1] for action in (
    lambda: one * many, lambda: many * one, lambda: torch.outer(short, long),
))
print("1 * 1,000, 1,000 * 1, outer(32, 64):", first, second, outer)
assert (first, second, outer) == (1, 1000, 32)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
