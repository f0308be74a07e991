#!/bin/bash
# pytorch-lightning 2.6.6 with torch 2.13.0 (CPU build, Python 3.11): in the report of AdvancedProfiler, an action has
# none of the calls of the actions inside of it.
#
# A reader would guess: it is cProfile for each action, so "run_training_batch" has all that a batch calls, with
# cumulative times, and "run_training_epoch" more.
#
# Seen: a function that training_step calls five times is in the table of "[Strategy]...training_step" alone, not
# in that of run_training_batch or run_training_epoch, around it.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 pytorch-lightning==2.6.6
cat >"$work/see.py" <<'END'
import logging
import pathlib

import pytorch_lightning
import torch
from pytorch_lightning.profilers import AdvancedProfiler

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


def slow_part():
    return sum(range(100_000))


class Model(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        slow_part()
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


trainer = pytorch_lightning.Trainer(
    accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, profiler=AdvancedProfiler(dirpath=".", filename="report"),
)
trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(20, 4), batch_size=4))
(file,) = pathlib.Path().glob("*report*")
actions = file.read_text().split("Profile stats for: ")[1:]
calls = {action.splitlines()[0]: [l.split()[0] for l in action.splitlines() if "slow_part" in l] for action in actions}
print({action: count for action, count in calls.items() if count or action.startswith("run_")})
assert calls["run_training_batch"] == calls["run_training_epoch"] == []
assert calls["[Strategy]SingleDeviceStrategy.training_step"] == ["5"]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
