#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): each pass over a DataLoader takes a number from torch's global random state,
# also without shuffling and without workers: an evaluation changes how the training goes on.
#
# A reader would guess: a loader that shuffles nothing, in this process, leaves the random state alone. So two jobs with
# the same seed train alike, whether one of them also evaluates or not.
#
# Seen: after a pass over DataLoader([0, 1, 2, 3]) the state is another one; the second epoch of the training loader has
# another order with such a pass before it. Each pass draws a base seed for workers. To compare a run with evaluation to
# one without, or a warm-up to none, give each loader a generator of its own: then the state stays, and so does the
# order.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.utils.data import DataLoader


def second_epoch(evaluates, **how):
    """Return the order of the training loader's second epoch, with an evaluation before it or without."""
    torch.manual_seed(0)
    training = DataLoader(range(1000), batch_size=1000, shuffle=True)
    evaluation = DataLoader([0, 1, 2, 3], shuffle=False, num_workers=0, **how)
    list(training)
    before = torch.get_rng_state()
    if evaluates:
        list(evaluation)
    same = torch.equal(before, torch.get_rng_state())
    (batch,) = training
    return same, batch.tolist()


alone, plain, own = second_epoch(False), second_epoch(True), second_epoch(True, generator=torch.Generator())
print("random state as before; plain:", plain[0], "with a generator:", own[0])
print("second epoch as without an evaluation; plain:", plain[1] == alone[1], "with a generator:", own[1] == alone[1])
assert not plain[0] and plain[1] != alone[1]
assert own == alone == (True, alone[1])
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
