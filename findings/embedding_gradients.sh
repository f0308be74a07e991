#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): gradients of a bfloat16 embedding on a CPU stop at 256 for a frequent token.
#
# A reader would guess: as for each sum on bfloat16, and for a Linear's bias, terms are added in float32, and the result
# is rounded once.
#
# Seen, a token that is in the batch 1,000 times, with a gradient of 1 each: 256, where adding 1 rounds back to 256. The
# same for EmbeddingBag, for tensor[index], and for index_add. A Linear's bias, scatter_add and the forward pass of
# EmbeddingBag have 1,000. float16 stops at 2,048. So the most frequent tokens learn too slowly on a CPU, by the size of
# the batch: of four batches of 250 the gradients, accumulated in .grad, are 1,000.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
import torch.nn.functional as F


def gradient(use, dtype=torch.bfloat16, batches=1, size=1000):
    """Return the gradient of the first row of a weight that is used in this way, with a gradient of 1 each time."""
    weight = torch.zeros(4, 1, dtype=dtype, requires_grad=True)
    for _ in range(batches):
        use(weight, torch.zeros(size, dtype=torch.long)).sum().backward()
    return weight.grad[0].item()


def bag(weight, index):
    return F.embedding_bag(index[None], weight, mode="sum")


def bias(weight, index):
    return F.linear(torch.zeros(len(index), 1, dtype=weight.dtype), torch.zeros_like(weight), weight[:, 0])


def embed(weight, index):
    return F.embedding(index, weight)


seen = {
    "embedding": gradient(embed), "tensor[index]": gradient(lambda weight, index: weight[index]),
    "float16": gradient(embed, torch.float16, size=4000), "bag": gradient(bag), "bias": gradient(bias),
    "four batches": gradient(embed, batches=4, size=250),
}
print(seen)
assert seen["embedding"] == seen["tensor[index]"] == seen["bag"] == 256
assert seen["float16"] == 2048 and seen["bias"] == seen["four batches"] == 1000
assert bag(torch.ones(4, 1).bfloat16(), torch.zeros(1000, dtype=torch.long)).item() == 1000
zeros, ones, first = torch.zeros(1).bfloat16(), torch.ones(1000).bfloat16(), torch.zeros(1000, dtype=torch.long)
assert zeros.index_add(0, first, ones).item() == 256 and zeros.scatter_add(0, first, ones).item() == 1000
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
