#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): FlopCounterMode counts the backward pass of a convolution in g groups (1 + g)
# times the forward pass.
#
# A reader would guess: twice the forward pass, as for a convolution without groups: the gradients of input and of
# weight each cost as much as the forward pass, groups or not.
#
# Seen, 8 to 16 channels: the backward pass is 2, 3, 5 and 9 times the forward one with 1, 2, 4 and 8 groups: the
# weight's gradient is counted as if all channels met. So training a depthwise convolution of 512 channels seems to cost
# 514 times its forward pass instead of 3, and the MFU of such a model is far too high. It is so for transposed ones,
# too.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.utils.flop_counter import FlopCounterMode


def counts(layer, channels):
    """Return the counted FLOPs of the forward pass, and how many times that the backward pass is counted."""
    image = torch.ones(2, channels, 10, 10, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        layer(image).sum().backward()
    flops = {str(operator): count for operator, count in counter.get_flop_counts()["Global"].items()}
    return flops["aten.convolution"], flops["aten.convolution_backward"] / flops["aten.convolution"]


for kind, pixels in ((torch.nn.Conv2d, 8 * 8), (torch.nn.ConvTranspose2d, 10 * 10)):
    for groups in (1, 2, 4, 8):
        forward, times = counts(kind(8, 16, 3, groups=groups), 8)
        print(kind.__name__, "groups:", groups, "forward:", forward, "backward, times forward:", times)
        assert forward == 2 * 2 * 8 * 16 * 3 * 3 * pixels // groups and times == 1 + groups
depthwise = counts(torch.nn.Conv2d(512, 512, 3, groups=512), 512)
print("depthwise, 512 channels:", depthwise)
assert depthwise[1] == 513
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
