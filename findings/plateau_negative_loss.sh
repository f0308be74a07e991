#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): ReduceLROnPlateau never lowers the learning rate for a negative loss that
# stands still, and takes slightly worse losses for better ones.
#
# A reader would guess: after `patience` epochs without progress the rate drops, whatever sign the metric has.
#
# Seen, 30 epochs of one value, patience 5: 1.0 lowers the rate four times, -1.0 never, in both modes. The threshold is
# relative unless one says otherwise, and better is less than best * (1 - 1e-4): for -1.0 that is -0.9999, so the same
# value is better each time. What is worse by less than 0.01 % is the new best: after a slow rise from -1.0 to -0.9 the
# best is -0.9, and the rate was not lowered. threshold_mode="abs" is right for both signs: take it for likelihoods,
# ELBOs and rewards.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch


def after(metrics, mode, kind):
    """Return how often the learning rate was lowered, and the best metric that the scheduler knows."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode=mode, threshold_mode=kind, factor=0.5, patience=5,
    )
    rates = []
    for metric in metrics:
        scheduler.step(metric)
        rates.append(scheduler.get_last_lr()[0])
    return len({1.0, *rates}) - 1, round(scheduler.best, 4)


worse = [step / 20_000 for step in range(2001)]
for mode, sign in (("min", 1), ("max", -1)):
    relative, absolute = (
        {
            "stays at 1": after([1.0] * 30, mode, kind),
            "stays at -1": after([-1.0] * 30, mode, kind),
            "gets worse from -1": after([-1.0 + sign * by for by in worse], mode, kind),
        }
        for kind in ("rel", "abs")
    )
    print(f"mode {mode}, times lowered and best: relative {relative}, absolute {absolute}")
    assert relative["stays at 1"] == absolute["stays at 1"] == (4, 1.0)
    assert relative["stays at -1"] == (0, -1.0) and absolute["stays at -1"] == (4, -1.0)
    assert relative["gets worse from -1"] == (0, round(-1.0 + sign * 0.1, 4))
    assert absolute["gets worse from -1"][0] > 4 and absolute["gets worse from -1"][1] == -1.0
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
