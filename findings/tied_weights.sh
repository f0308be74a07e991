#!/bin/bash
# torch 2.13.0 (CPU build, gloo, two ranks, Python 3.11): parallelize_module and to_empty() make two weights of one tied
# weight, without a word.
#
# A reader would guess: head.weight = embedding.weight stays tied, as after to(), deepcopy and fully_shard, or there is
# an error, as fully_shard has one if a tied weight is in two groups.
#
# Seen: after parallelize_module of both layers, of the head alone, after distribute_module, and after to_empty() of a
# model on the meta device, the model has a parameter more, and after one step head and embedding differ. Each layer
# gets a new Parameter of its own; load_state_dict(assign=True) does so as well. Tie them again afterwards, and compare
# the number of parameters.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import copy
import datetime
import pathlib

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(8, 4), nn.Linear(4, 8, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def emptied():
    with torch.device("meta"):
        model = Model()
    assert model.head.weight is model.embedding.weight
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        nn.init.ones_(parameter)
    return model


def trained(model):
    """Return the number of parameters, and whether head and embedding are equal after a step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    whole(model(torch.arange(4))).pow(2).sum().backward()
    optimizer.step()
    return len(list(model.parameters())), torch.equal(whole(model.head.weight), whole(model.embedding.weight))


def rank(number):
    dist.init_process_group(
        "gloo", rank=number, world_size=2, init_method=f"file://{pathlib.Path('store').absolute()}",
        timeout=datetime.timedelta(seconds=60),
    )
    mesh = init_device_mesh("cpu", (2,))
    rows = RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate())
    columns = ColwiseParallel(output_layouts=Replicate())
    models = {
        "to()": Model().to(torch.bfloat16), "deepcopy": copy.deepcopy(Model()),
        "fully_shard": fully_shard(Model(), mesh=mesh), "to_empty()": emptied(),
        "parallelize_module of both": parallelize_module(Model(), mesh, {"embedding": rows, "head": columns}),
        "parallelize_module of the head": parallelize_module(Model(), mesh, {"head": columns}),
    }
    for name, model in models.items():
        parameters, equal = trained(model)
        if number == 0:
            print(f"{name}: {parameters} parameters, equal after a step: {equal}", flush=True)
        tied = name in ("to()", "deepcopy", "fully_shard")
        assert (parameters, equal) == ((1, True) if tied else (2, False))
    assert len(list(distribute_module(Model(), mesh).parameters())) == 2
    assigned = Model()
    assigned.load_state_dict(Model().state_dict(), assign=True)
    assert len(list(assigned.parameters())) == 2
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
