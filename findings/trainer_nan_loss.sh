#!/bin/bash
# transformers 5.23.0 (accelerate 1.15.0, torch 2.13.0, Python 3.11): Trainer logs a healthy loss while the loss is NaN.
#
# A reader would guess: a NaN appears in the log, at the step where it appears, or makes the mean NaN.
#
# Seen, eight steps with a loss of 10, NaN from the third on (then so are the weights): logged each step it is 10, 10,
# then 0.0; logged once for all eight it is 7.5, since each NaN is replaced by what was added up, divided by the steps
# so far. train_loss is 2.5 and 7.5. grad_norm is nan, and the only sign. logging_nan_inf_filter=False logs nan.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q transformers==5.23.0 accelerate==1.15.0 torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import math
import os

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers

STEPS = 8


class Model(torch.nn.Module):
    """Its loss is 10 in two steps, and NaN from then on."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.steps = 0

    def forward(self, x):
        self.steps += 1
        loss = 10 + 0 * self.layer(x).sum()
        return {"loss": loss * math.nan if self.steps > 2 else loss}


def trained(**how):
    """Return the losses that were logged, the last gradient norm, and the loss of the whole training."""
    arguments = transformers.TrainingArguments(
        output_dir="out", max_steps=STEPS, per_device_train_batch_size=1, report_to=[], use_cpu=True,
        disable_tqdm=True, save_strategy="no", **how,
    )
    data = [{"x": torch.ones(4)}] * STEPS
    trainer = transformers.Trainer(Model(), arguments, train_dataset=data)
    total = trainer.train().training_loss
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    return [entry["loss"] for entry in logged], logged[-1]["grad_norm"], total


each, norm, total = trained(logging_steps=1)
once, _, total_once = trained(logging_steps=STEPS)
honest, _, _ = trained(logging_steps=STEPS, logging_nan_inf_filter=False)
print("each step:", each, "grad_norm:", norm, "train_loss:", total)
print("once:", once, "train_loss:", total_once, "without the filter:", honest)
assert list(map(float, each)) == [10, 10] + [0] * 6 and math.isnan(float(norm)) and total == 2.5
assert round(float(once[0]), 3) == round(total_once, 3) == 7.5 and math.isnan(float(honest[0]))
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
