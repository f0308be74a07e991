#!/bin/bash
# transformers 5.24.0 (accelerate 1.15.0, torch 2.13.0, Python 3.11): with gradient accumulation Trainer loads all batches of
# an optimizer step, and one more, before the first of its forward passes.
#
# A reader would guess: load, forward, backward, load, forward, backward, as in the loop that one writes oneself.
#
# Seen, gradient_accumulation_steps=4: five batches are loaded, then four forward passes run; then four and four. So a
# step waits for the loader once, for four batches in a row with nothing on the GPU, and workers that are as fast as the
# model keep it waiting unless they prefetch as many. All four batches are in memory at once.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q transformers==5.24.0 accelerate==1.15.0 torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import itertools

import torch
import transformers

transformers.logging.set_verbosity_error()
did = []


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        did.append("load")
        return {"x": torch.ones(2)}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 1)

    def forward(self, x):
        did.append("forward")
        return {"loss": self.linear(x).mean()}


def trained(accumulation, steps):
    """Return what was done in a training, as (what, how often in a row)."""
    did.clear()
    arguments = transformers.TrainingArguments(
        output_dir="run", use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no", logging_strategy="no",
        per_device_train_batch_size=1, gradient_accumulation_steps=accumulation, max_steps=steps,
    )
    transformers.Trainer(Model(), arguments, train_dataset=Rows()).train()
    return [(what, len(list(times))) for what, times in itertools.groupby(did)]


one, four = trained(1, 4), trained(4, 2)
print("accumulation of 1:", one)
print("accumulation of 4:", four)
assert one == [("load", 2), ("forward", 1)] + [("load", 1), ("forward", 1)] * 3
assert four == [("load", 5), ("forward", 4), ("load", 4), ("forward", 4)]
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
