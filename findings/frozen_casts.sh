#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): autocast casts a frozen weight anew for each use; only a weight that trains is
# cast once.
#
# A reader would guess: autocast keeps the casts of all weights until its region ends, so a layer that is used ten
# times is cast once, frozen or not.
#
# Seen, a Linear (weight and bias) used ten times in one region: 12 casts if it trains (10 of the inputs), 30 if it is
# frozen, also under no_grad. So adapters on a frozen model (LoRA) have more aten::_to_copy, and more memory moved,
# than training everything, where weights are used more than once in a region: tied layers, decoding in a loop. Casting
# the frozen model to bfloat16 once ends it. Under no_grad a weight that could train is cast once, too.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.profiler import ProfilerActivity, profile

USES = 10


def casts(trains, gradients=True):
    layer, x = torch.nn.Linear(64, 64).requires_grad_(trains), torch.randn(4, 64)
    with profile(activities=[ProfilerActivity.CPU]) as recording, torch.set_grad_enabled(gradients):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for _ in range(USES):
                layer(x)
    return sum(row.count for row in recording.key_averages() if row.key == "aten::_to_copy")


seen = {(trains, gradients): casts(trains, gradients) for trains in (True, False) for gradients in (True, False)}
for (trains, gradients), count in seen.items():
    print("trains" if trains else "frozen", "with" if gradients else "without", "gradients:", count, "casts")
assert seen[True, True] == seen[True, False] == USES + 2
assert seen[False, True] == seen[False, False] == 3 * USES
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
