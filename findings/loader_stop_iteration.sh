#!/bin/bash
# torch 2.13.0 (CPU build, Linux, Python 3.11): a StopIteration in a dataset's `__getitem__` ends the epoch without a
# word, with workers and without.
#
# A reader would guess: an error, as for every other exception of a sample: the sampler says how many samples there are,
# and Python itself makes a RuntimeError of a StopIteration inside of a generator.
#
# Seen, ten samples, batches of two, and next() of an empty iterator in sample 5: two batches, then the epoch is over,
# with 0, 1 and 2 workers. len(loader) is 5. A KeyError in the same place raises. So a dataset that takes its next line
# with next() trains on a part of the data, and its epochs seem fast.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import gc

import torch


class Samples(torch.utils.data.Dataset):
    def __init__(self, error):
        self.error = error

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index == 5:
            raise self.error("sample 5")
        return index


def batches(error, workers):
    loader = torch.utils.data.DataLoader(Samples(error), batch_size=2, num_workers=workers)
    try:
        return [batch.tolist() for batch in loader], len(loader)
    except Exception as raised:
        return type(raised).__name__
    finally:
        gc.collect()  # else the workers of the next loader complain about the iterator of this one


for workers in (0, 1, 2):
    ends, fails = batches(StopIteration, workers), batches(KeyError, workers)
    print("workers:", workers, "StopIteration:", ends, "KeyError:", fails)
    assert ends == ([[0, 1], [2, 3]], 5) and fails == "KeyError"
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
