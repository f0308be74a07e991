#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): with activation checkpointing, each step updates the running statistics of
# BatchNorm twice, and num_batches_tracked counts two.
#
# A reader would guess: checkpointing trades time for memory, and the trained model is the same.
#
# Seen, after one step with momentum 0.1: the running mean is 0.19 of the batch's mean instead of 0.1, in both kinds
# of checkpoints, since the forward pass that is repeated for the backward pass updates them again. The weights'
# gradients are the same. So the two models train alike, and evaluate differently.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.utils.checkpoint import checkpoint

x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0)) + 3


def statistics(run):
    """Run one step; return the batches counted, the running mean as a share of the batch's, and the gradient."""
    torch.manual_seed(0)
    norm = torch.nn.BatchNorm1d(4)
    model = torch.nn.Sequential(norm, torch.nn.ReLU(), torch.nn.Linear(4, 1))
    run(model, x.clone().requires_grad_()).sum().backward()
    share = (norm.running_mean / x.mean(0)).mean().item()
    return norm.num_batches_tracked.item(), round(share, 4), model[2].weight.grad


plain = statistics(lambda model, x: model(x))
checkpointed = [statistics(lambda model, x, kind=kind: checkpoint(model, x, use_reentrant=kind)) for kind in (0, 1)]
print("plain:", plain[:2], "checkpointed:", [seen[:2] for seen in checkpointed])
assert plain[:2] == (1, 0.1)
for seen in checkpointed:
    assert seen[:2] == (2, 0.19) and torch.equal(seen[2], plain[2])
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
