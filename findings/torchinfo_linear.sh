#!/bin/bash
# torchinfo 1.8.0 (torch 2.13.0, Python 3.11): "Total mult-adds" counts a Linear once for each sample, not each token.
#
# A reader would guess: an input of 4 x 512 tokens costs 512 times as much as one of 4.
#
# Seen, Linear(16, 32): 2,176 for an input of (4, 16), of (4, 512, 16) and of (4, 8, 64, 16), though these multiply and
# add 2,048 times, and 1,048,576 times: it is the number of parameters, bias included, times the first dimension. So for
# sequence models it is too low by the length of the sequence, and 2,048 rows given as (1, 2048, 16) seem to cost 2,048
# times less than as (2048, 16).
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torchinfo==1.8.0 torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.utils.flop_counter import FlopCounterMode
from torchinfo import summary

layer = torch.nn.Linear(16, 32)
for size in [(4, 16), (4, 512, 16), (4, 8, 64, 16), (1, 2048, 16), (2048, 16)]:
    told = summary(layer, size, verbose=0).total_mult_adds
    with FlopCounterMode(display=False) as counter:
        layer(torch.ones(size))
    multiplied = counter.get_total_flops() // 2
    print(size, "torchinfo:", told, "multiplied and added:", multiplied)
    assert told == size[0] * (16 * 32 + 32)
    assert multiplied == torch.ones(size).numel() * 32
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
