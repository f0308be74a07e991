#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11), tensorboard 2.21.0: EventAccumulator keeps 10 of the 1,000 points
# that add_scalar(new_style=True) wrote, and does not list them as scalars. TensorBoard shows all 1,000.
#
# A reader would guess: new_style changes how a scalar is stored; it stays in Tags()["scalars"], complete.
#
# Seen: the old style is in "scalars" with 1,000 points. The new style is in "tensors" with 10, of which nine
# are drawn at random (by a fixed seed) and one is the last: by default the class keeps 10,000 scalars and 10
# tensors of a tag.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 tensorboard==2.21.0 tensorboard-data-server==0.7.2
cat >"$work/see.py" <<'END'
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

with SummaryWriter("log") as writer:
    for step in range(1000):
        writer.add_scalar("old", step, step)
        writer.add_scalar("new", step, step, new_style=True)
accumulator = EventAccumulator("log").Reload()
tags = accumulator.Tags()
kept = [event.step for event in accumulator.Tensors("new")]
print(tags["scalars"], len(accumulator.Scalars("old")), tags["tensors"], kept)
assert tags["scalars"] == ["old"] and len(accumulator.Scalars("old")) == 1000
assert tags["tensors"] == ["new"] and len(kept) == 10 and kept[-1] == 999
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
