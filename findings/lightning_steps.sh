#!/bin/bash
# pytorch-lightning 2.6.6 with torch 2.13.0 (CPU build, Python 3.11): Lightning's sanity check of validation
# changes which training steps its PyTorchProfiler records, and gives two of them one name.
#
# A reader would guess: the default schedule has three active steps, so a training file has ProfilerStep#2,
# #3, #4, with or without the sanity check, which is no training.
#
# Seen, ten batches and two epochs: with num_sanity_val_steps=0 #2, #3, #4. With the default of 2 the training
# file has five steps: #2, #1, #2, #3, #4, each with one training step.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 pytorch-lightning==2.6.6
cat >"$work/see.py" <<'END'
import json
import logging
import pathlib

import pytorch_lightning
import torch
from pytorch_lightning.profilers import PyTorchProfiler

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class Model(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        return self.layer(batch).sum()

    def validation_step(self, batch, _):
        self.layer(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def steps(folder, **how):
    batches = torch.utils.data.DataLoader(torch.randn(40, 4), batch_size=4)
    trainer = pytorch_lightning.Trainer(
        accelerator="cpu", max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, profiler=PyTorchProfiler(dirpath=folder, filename="recording"), **how,
    )
    trainer.fit(Model(), batches, batches)
    (file,) = pathlib.Path(folder).glob("*training_step*.json")
    events = json.loads(file.read_text())["traceEvents"]
    marks = [e for e in events if e.get("ph") == "X" and e["name"].startswith("ProfilerStep#")]
    return [mark["name"][-2:] for mark in sorted(marks, key=lambda mark: mark["ts"])]


with_check, without = steps("default"), steps("none", num_sanity_val_steps=0)
print(with_check, without)
assert with_check == ["#2", "#1", "#2", "#3", "#4"] and without == ["#2", "#3", "#4"]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
