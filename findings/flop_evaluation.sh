#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): FlopCounterMode counts nothing for a TransformerEncoderLayer in
# evaluation without gradients, and nothing for an LSTM in any mode, but all of a GRU.
#
# A reader would guess: the forward pass of one module has the same count in training and in evaluation; an LSTM
# counts like a GRU, 4 / 3 of it.
#
# Seen: the layer has 44,160 with train(), 40,960 with eval(), and 0 with eval() under no_grad or inference_mode:
# torch then runs it as one fused operator that has no formula. nn.LSTM is one operator on a CPU, too: 0;
# nn.GRU 30,720. with_flops=True of the profiler sees into the layer (33,920) and not into the LSTM (64, of
# additions).
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode


def flops(module, x):
    with FlopCounterMode(display=False) as counter:
        module(x)
    return counter.get_total_flops()


def profiled(module, x):
    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as profiler:
        module(x)
    return sum(row.flops or 0 for row in profiler.key_averages())


layer, x = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), torch.randn(2, 5, 16)
training, evaluation = flops(layer.train(), x), flops(layer.eval(), x)
with torch.no_grad():
    fused = flops(layer, x), profiled(layer, x)
with torch.inference_mode():
    inference = flops(layer, x)
x = torch.randn(5, 2, 16)
lstm, gru = torch.nn.LSTM(16, 16), torch.nn.GRU(16, 16)
print("layer: train", training, "eval", evaluation, "no_grad (and profiler)", fused, "inference_mode", inference)
print("LSTM (and profiler):", flops(lstm, x), profiled(lstm, x), "GRU:", flops(gru, x))
assert (training, evaluation, fused, inference) == (44160, 40960, (0, 33920), 0)
assert (flops(lstm, x), profiled(lstm, x), flops(gru, x)) == (0, 64, 30720)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
