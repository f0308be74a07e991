#!/bin/bash
# Lightning 2.6.6 (torch 2.13.0, Python 3.11): of its Timer callback, the time of "train" has the validation in it, and
# that of "validate" is of the last validation only.
#
# A reader would guess: each stage has its own time, added up over the epochs, so train and validate are the whole.
#
# Seen, two epochs of 5 training steps and 5 batches of validation, of 0.1 s each, in fit(): "train" is more than 2 s,
# "validate" between 0.5 and 1 s, "sanity_check" 0. So subtracting the time of validation leaves all validations but
# one in, and a limit that Timer(duration=...) sets on training is used up by validating.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q lightning==2.6.6 torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import logging
import time

import lightning
import torch
from lightning.pytorch.callbacks import Timer

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
seconds = {"train": 0.0, "validate": 0.0}


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def wait(self, stage):
        start = time.monotonic()
        time.sleep(0.1)
        seconds[stage] += time.monotonic() - start

    def training_step(self, batch, _):
        self.wait("train")
        return self.layer(batch).mean()

    def validation_step(self, batch, _):
        self.wait("validate")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


timer, batches = Timer(), torch.utils.data.DataLoader(torch.ones(10, 4), batch_size=2)
lightning.Trainer(
    max_epochs=2, callbacks=[timer], accelerator="cpu", num_sanity_val_steps=0, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
).fit(Model(), batches, batches)
told = {stage: timer.time_elapsed(stage) for stage in ("train", "validate", "sanity_check")}
print("Timer:", told, "in the steps:", seconds)
assert told["train"] > seconds["train"] + seconds["validate"]
assert seconds["validate"] / 2 * 0.8 < told["validate"] < seconds["validate"] * 0.8
assert told["sanity_check"] == 0
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
