#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): after 144 bad batches in a row, GradScaler destroys the weights at the first
# good one.
#
# A reader would guess: it skips each step with gradients that are not finite, and has a least scale, so the weights
# stay as they were, and training goes on when the data are good again.
#
# Seen: the scale starts at 65536 and halves for each batch with a NaN, without a floor. After 143 such batches the next
# good one trains. After 144 the inverse of the scale is infinite as a 32-bit float: the check for finite gradients
# comes before the multiplication, so the step is taken, and each weight is infinite or NaN. After 166 the scale is 0
# and stays 0. Nothing raises or warns: watch get_scale(), and stop at a few dozen skipped steps.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import math

import torch


def train(bad):
    """Train on bad batches and on three good ones; return the scale after the bad ones, and the weights."""
    model = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    for batch in range(bad + 3):
        if batch == bad:
            scale = scaler.get_scale()
            assert model.weight.tolist() == [[1.0, 1.0]]
        optimizer.zero_grad()
        scaler.scale(model(torch.full((1, 2), math.nan if batch < bad else 1.0)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    return scale, model.weight.tolist()[0], scaler.get_scale()


for bad in (0, 1, 100, 143, 144, 166):
    scale, weights, last = train(bad)
    print(f"{bad} bad batches: scale {scale}, weights three good batches later {weights}, then scale {last}")
    assert scale == 2.0 ** (16 - bad) if bad < 166 else scale == last == 0
    if bad < 144:
        assert all(abs(weight - 0.7) < 1e-5 for weight in weights)
    else:
        assert not any(math.isfinite(weight) for weight in weights)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
