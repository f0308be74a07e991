#!/bin/bash
# torchinfo 1.8.0 and thop 0.1.1.post2209072238 (torch 2.13.0, Python 3.11): looking at a model sets its frozen
# BatchNorm layers back to training.
#
# A reader would guess: a summary, or a count of operations, leaves the model as it was.
#
# Seen, a model in training with its BatchNorm in eval(), as fine-tuning does it: after torchinfo.summary() and after
# thop.profile() the layer is in training. Both remember the mode of the outermost module and give it to all. The next
# steps then change the running statistics. Call them before modules are frozen.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torchinfo==1.8.0 thop==0.1.1.post2209072238 torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import thop
import torch
import torchinfo


def looked_at(look):
    """Freeze a BatchNorm, look at the model, train a step; return the layer's mode and the batches that it counted."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)).train()
    model[1].eval()
    look(model)
    model(torch.randn(4, 8))
    return model[1].training, model[1].num_batches_tracked.item()


def no_look(model):
    pass


def torchinfo_summary(model):
    torchinfo.summary(model, (4, 8), verbose=0)


def thop_profile(model):
    thop.profile(model, (torch.randn(4, 8),), verbose=False)


seen = {look.__name__: looked_at(look) for look in (no_look, torchinfo_summary, thop_profile)}
print("BatchNorm in training, batches counted:", seen)
assert seen == {"no_look": (False, 0), "torchinfo_summary": (True, 1), "thop_profile": (True, 1)}
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
