#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11), tensorboard 2.21.0: SummaryWriter.add_histogram leaves out NaN and infinite
# values without a word, and ends the job when no value is between -1e20 and 1e20.
#
# A reader would guess: it refuses a tensor with a NaN, as numpy.histogram does, or takes any tensor.
#
# Seen: of 1, 2, NaN, 3 the buckets have three values, `num` says 4, and minimum, maximum and sum are NaN; likewise for
# infinity. If all gradients are NaN, or above 1e20, it raises ValueError "The histogram is empty, please file a bug
# report": so a callback that logs gradients lets one bad layer go by, and ends the job that diverged before it logs it.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 tensorboard==2.21.0
cat >"$work/see.py" <<'END'
import math

import numpy
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

nan, infinity = float("nan"), float("inf")


def written(name, *values):
    """Return num, values in buckets and maximum of the histogram of these values, or the error."""
    with SummaryWriter(name) as writer:
        try:
            writer.add_histogram("gradients", torch.tensor(values), 0)
        except ValueError as error:
            return str(error)
    events = EventAccumulator(name)
    events.Reload()
    histogram = events.Histograms("gradients")[0].histogram_value
    return histogram.num, sum(histogram.bucket), histogram.max


good, with_nan, with_infinity = written("good", 1, 2, 3), written("nan", 1, 2, nan, 3), written("infinity", 1, 2, infinity)
all_nan, large = written("all", nan, nan, nan), written("large", 1e21, 2e21)
try:
    in_numpy = numpy.histogram([1, 2, nan, 3])
except ValueError as error:
    in_numpy = str(error)
print(good, with_nan, with_infinity, all_nan, large, in_numpy, sep="\n")
assert good == (3, 3, 3)
assert with_nan[:2] == (4, 3) and math.isnan(with_nan[2])
assert with_infinity == (3, 2, infinity)
assert all_nan == large == "The histogram is empty, please file a bug report."
assert "not finite" in in_numpy
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
