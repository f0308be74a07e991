#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): get_state_dict of torch.distributed.checkpoint makes a step of a new optimizer,
# so a run that saved before its first step trains otherwise.
#
# A reader would guess: getting a state dict reads. Adam has no state before the first step, so there is none to save.
#
# Seen: it gives each parameter a gradient of 0, makes a step with a learning rate of 0, and leaves the state there: the
# step counter is 1, so Adam corrects the bias of its averages for one step too many. The weights after two steps differ
# by 0.04 at a learning rate of 0.1, and the counter is 3. optimizer.state_dict() only reads.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.distributed.checkpoint.state_dict import get_state_dict


def trained(look):
    """Train two steps, after a look at the state; return the weights and Adam's counter of steps."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    look(model, optimizer)
    for _ in range(2):
        optimizer.zero_grad()
        (model(torch.arange(4.0)) ** 2).sum().backward()
        optimizer.step()
    return model.weight.detach(), int(optimizer.state[model.weight]["step"])


nothing, steps = trained(lambda model, optimizer: None)
read, steps_read = trained(lambda model, optimizer: optimizer.state_dict())
got, steps_got = trained(get_state_dict)
difference = float((got - nothing).abs().max())
print("steps:", steps, steps_read, steps_got, "difference of weights after get_state_dict:", difference)
assert (steps, steps_read, steps_got) == (2, 2, 3)
assert torch.equal(nothing, read) and difference > 0.01
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
