#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): the two flop counters of torch disagree about one convolution by 3,
# agree about a linear layer, and both count nothing for attention on a CPU.
#
# A reader would guess: `with_flops=True` and FlopCounterMode count the same for forward and backward of each
# of the three.
#
# Seen, forward and backward: convolution 169,344 by the profiler (forward alone: it knows aten::conv2d and
# not aten::convolution_backward), 508,032 by FlopCounterMode. Linear 172,032 by both.
# scaled_dot_product_attention 0 by both: neither has a formula for
# aten::_scaled_dot_product_flash_attention_for_cpu.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode


def counts(forward, *shape):
    x = torch.randn(*shape, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as profiler:
        forward(x).sum().backward()
    with FlopCounterMode(display=False) as counter:
        forward(x).sum().backward()
    return sum(row.flops or 0 for row in profiler.key_averages()), counter.get_total_flops()


convolution = counts(torch.nn.Conv2d(3, 8, 3), 2, 3, 16, 16)
linear = counts(torch.nn.Linear(32, 32), 4, 7, 32)
attention = counts(lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x), 2, 4, 64, 16)
print("profiler, FlopCounterMode:", convolution, linear, attention)
assert convolution == (169344, 508032) and linear == (172032, 172032) and attention == (0, 0)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
