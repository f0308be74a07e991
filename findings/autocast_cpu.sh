#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): autocast for the CPU leaves softmax, layer_norm, sum, exp and norm in bfloat16.
#
# A reader would guess: float32, as autocast for CUDA makes of them: a check of a training loop on a CPU has the same
# dtypes.
#
# Seen, of a bfloat16 tensor in torch.autocast("cpu"): bfloat16 for softmax, log_softmax, layer_norm, group_norm, sum,
# exp, log, pow, norm, cumsum and cosine_similarity, each of which autocast for CUDA casts to float32. float32 for
# cross_entropy, nll_loss, mse_loss, l1_loss, kl_div and prod. So a softmax, a norm of gradients and a sum of losses
# inside of autocast have 8 bits of precision: a sum of 1,001 ones is 1,000, the logarithm of it 6.90625.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
import torch.nn.functional as F

tensor, classes = torch.rand(8, 8).bfloat16(), torch.zeros(8, dtype=torch.long)
left = {
    "softmax": tensor.softmax, "log_softmax": tensor.log_softmax, "sum": tensor.sum, "exp": lambda _: tensor.exp(),
    "log": lambda _: tensor.log(), "pow": lambda _: tensor.pow(2), "norm": lambda _: tensor.norm(),
    "cumsum": tensor.cumsum, "layer_norm": lambda _: F.layer_norm(tensor, (8,)),
    "group_norm": lambda _: F.group_norm(tensor, 2), "cosine_similarity": lambda _: F.cosine_similarity(tensor, tensor),
}
cast = {
    "cross_entropy": lambda _: F.cross_entropy(tensor, classes), "nll_loss": lambda _: F.nll_loss(tensor, classes),
    "mse_loss": lambda _: F.mse_loss(tensor, tensor), "l1_loss": lambda _: F.l1_loss(tensor, tensor),
    "kl_div": lambda _: F.kl_div(tensor, tensor), "prod": lambda _: tensor.prod(),
}
with torch.autocast("cpu"):
    dtypes = {name: run(1).dtype for name, run in (left | cast).items()}
    total = torch.ones(1001).bfloat16().sum()
    logarithm = total.log()
print(dtypes, total, logarithm)
assert {dtypes[name] for name in left} == {torch.bfloat16}
assert {dtypes[name] for name in cast} == {torch.float32}
assert total.item() == 1000 and logarithm.item() == 6.90625
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
