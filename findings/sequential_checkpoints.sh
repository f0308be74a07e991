#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): checkpoint_sequential never checkpoints its last segment, and that one has all
# layers that are left over, so more segments may save less memory.
#
# A reader would guess: 23 layers in 12 segments are 12 checkpoints of about two layers, and only the input of each is
# kept.
#
# Seen: each segment has 23 // 12 = 1 layer, and the last one the other 12, which run as usual and keep their
# activations. So 11 of 23 layers run twice; of 24 layers in 12 segments 22. With one segment nothing is checkpointed.
# The gradients are right, so only a trace or the memory shows it. Call checkpoint() for each block to checkpoint all.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import collections

import torch
from torch.utils.checkpoint import checkpoint_sequential


class Layer(torch.nn.Linear):
    def forward(self, x):
        calls[self] += 1
        return super().forward(x).relu()


def runs_of(layers, segments):
    """Return how often each layer runs in one step."""
    model = torch.nn.Sequential(*(Layer(16, 16) for _ in range(layers)))
    calls.clear()
    checkpoint_sequential(model, segments, torch.ones(8, 16, requires_grad=True), use_reentrant=False).sum().backward()
    return [calls[layer] for layer in model]


calls = collections.Counter()
for layers, segments, twice in ((24, 12, 22), (23, 12, 11), (23, 6, 15), (11, 6, 5), (24, 1, 0)):
    runs = runs_of(layers, segments)
    print(f"{layers} layers in {segments} segments run", *runs)
    assert runs == [2] * twice + [1] * (layers - twice)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
