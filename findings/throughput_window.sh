#!/bin/bash
# pytorch-lightning 2.6.6 (torch 2.13.0, Python 3.11): ThroughputMonitor logs no rate, and no MFU, before its hundredth
# batch.
#
# A reader would guess: batches_per_sec and samples_per_sec are in the log from the first logged step on, over the batches
# so far; window_size=100 is "Number of batches to use for a rolling average".
#
# Seen, logging each 10th step: a run of 90 steps logs batches, samples and time, and no rate, without a warning. One of 120
# steps has rates from step 99 on. So short trials and the first minutes of large models, which one looks at most, have
# none. ThroughputMonitor(..., window_size=10) has one at step 9.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 pytorch-lightning==2.6.6
cat >"$work/see.py" <<'END'
import csv
import logging
import pathlib

import pytorch_lightning
import torch
from pytorch_lightning.callbacks import ThroughputMonitor
from pytorch_lightning.loggers import CSVLogger
from torch.utils.data import DataLoader

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class Model(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def training_step(self, batch, index):
        return self.linear(batch.float()[:, None]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def steps_with(steps, **how):
    """Return how many rows a run of so many steps logged, and the steps of those with a rate."""
    monitor = ThroughputMonitor(batch_size_fn=len, **how)
    trainer = pytorch_lightning.Trainer(
        max_steps=steps, accelerator="cpu", log_every_n_steps=10, callbacks=[monitor], logger=CSVLogger("log"),
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Model(), DataLoader(torch.arange(1000), batch_size=4))
    with pathlib.Path(trainer.logger.log_dir, "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return len(rows), [int(row["step"]) for row in rows if row.get("train/device/samples_per_sec")]


short, long, narrow = steps_with(90), steps_with(120), steps_with(30, window_size=10)
print("rows and steps with rates; 90 steps:", short, "120 steps:", long, "30 steps with a window of 10:", narrow)
assert short == (9, [])
assert long == (12, [99, 109, 119])
assert narrow == (3, [9, 19, 29])
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
