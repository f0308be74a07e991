#!/bin/bash
# accelerate 1.15.0 and pytorch-lightning 2.6.6 (torch 2.13.0, Python 3.11): a loader that Accelerate prepared, and in
# Lightning one without a length, loads a batch ahead: the wait before a step is for the batch of the next one.
#
# A reader would guess: batches are asked for one at a time, each as its step begins, as torch's DataLoader does without
# workers.
#
# Seen: both load batches 0 and 1 before the first step, then one before each step, and none before the last. So the first
# step waits twice as long, a slow batch shows in the step before its own, and leaving the loop early loses a batch of a
# stream. With a length, Lightning loads as torch does.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 accelerate==1.15.0 pytorch-lightning==2.6.6
cat >"$work/see.py" <<'END'
import logging

import pytorch_lightning
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset, IterableDataset

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
did = []


class Rows(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        did.append(index)
        return float(index)


class Stream(IterableDataset):
    def __iter__(self):
        for index in range(4):
            did.append(index)
            yield float(index)


class Model(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def training_step(self, batch, index):
        did.append("step")
        return self.linear(batch.float()[:, None]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def in_loop(loader):
    did.clear()
    for _ in loader:
        did.append("step")
    return list(did)


def in_lightning(loader):
    did.clear()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    pytorch_lightning.Trainer(max_epochs=1, accelerator="cpu", **quiet).fit(Model(), loader)
    return list(did)


in_torch, in_accelerate = in_loop(DataLoader(Rows())), in_loop(Accelerator(cpu=True).prepare(DataLoader(Rows())))
of_rows, of_stream = in_lightning(DataLoader(Rows())), in_lightning(DataLoader(Stream()))
print("torch:", in_torch, "Accelerate:", in_accelerate, "Lightning:", of_rows, "Lightning, no length:", of_stream, sep="\n")
assert in_torch == of_rows == [0, "step", 1, "step", 2, "step", 3, "step"]
assert in_accelerate == of_stream == [0, 1, "step", 2, "step", 3, "step", "step"]
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
