#!/bin/bash
# transformers 5.24.0 (accelerate 1.15.0, torch 2.13.0, Python 3.11): train_steps_per_second and train_samples_per_second of
# Trainer are the lower the more it evaluates.
#
# A reader would guess: they are the speed of training, as eval_steps_per_second is that of the evaluation, which has its
# own eval_runtime.
#
# Seen, four training steps of 20 ms: about 40 steps per second; with an evaluation of 200 ms after each, 4. train_runtime
# has the evaluations in it (and loading the first batch). Two runs compare only if they evaluate alike: else take the
# sum of all eval_runtime from train_runtime first.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q transformers==5.24.0 accelerate==1.15.0 torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import time

import torch
import transformers

transformers.logging.set_verbosity_error()


class Rows(torch.utils.data.Dataset):
    def __init__(self, number):
        self.number = number

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        return {"x": torch.ones(2)}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 1)

    def forward(self, x):
        time.sleep(0.02)
        return {"loss": self.linear(x).mean()}


def trained(**how):
    """Return the steps per second of a training, and how many seconds its evaluations took."""
    arguments = transformers.TrainingArguments(
        output_dir="run", use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no", logging_strategy="no",
        per_device_train_batch_size=1, per_device_eval_batch_size=1, max_steps=4, **how,
    )
    trainer = transformers.Trainer(Model(), arguments, train_dataset=Rows(8), eval_dataset=Rows(10))
    metrics = trainer.train().metrics
    evaluated = [entry["eval_runtime"] for entry in trainer.state.log_history if "eval_runtime" in entry]
    return metrics["train_steps_per_second"], metrics["train_runtime"], sum(evaluated)


trained()  # the first training of a process takes longer
alone, evaluating = trained(), trained(eval_strategy="steps", eval_steps=1)
print("steps/s, train_runtime, sum of eval_runtime; training alone:", alone, "with evaluations:", evaluating)
assert alone[0] > 3 * evaluating[0]
assert abs(evaluating[1] * evaluating[0] - 4) < 0.1 and evaluating[1] > evaluating[2] > 0.8
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
