#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): who reads the weight of a layer with spectral_norm changes its training.
#
# A reader would guess: a norm or a histogram of layer.weight, logged in each step under no_grad, changes nothing.
#
# Seen: after three steps the logged layer has another output than the same layer without logging. In training mode each
# access to layer.weight of parametrizations.spectral_norm runs a step of the power iteration and keeps its vectors, so
# two reads in a row differ, too. parameters(), state_dict() and repr() do not read it. In eval mode reading is free,
# and inside parametrize.cached() after the first access.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm


def vectors(layer):
    return layer.parametrizations.weight[0]._u.clone()


def trained(log):
    """Train three steps; return the output afterwards."""
    torch.manual_seed(0)
    layer, x = spectral_norm(torch.nn.Linear(8, 8)), torch.randn(4, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        layer(x).pow(2).sum().backward()
        optimizer.step()
        with torch.no_grad():
            log(layer)
    return layer.eval()(x).sum().item()


plain, logged = trained(lambda layer: None), trained(lambda layer: layer.weight.norm().item())
print("output after three steps:", plain, "with the norm of the weight logged:", logged)
assert abs(plain - logged) > 1e-4
assert plain == trained(lambda layer: (list(layer.parameters()), layer.state_dict(), repr(layer)))
assert plain == trained(lambda layer: (layer.eval(), layer.weight.norm(), layer.train()))

layer = spectral_norm(torch.nn.Linear(8, 8))
assert not torch.equal(layer.weight, layer.weight)
before = vectors(layer)
with parametrize.cached():
    layer.weight
    once = vectors(layer)
    layer.weight
    assert not torch.equal(before, once) and torch.equal(once, vectors(layer))
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
