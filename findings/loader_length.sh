#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): DataLoader's warning that workers repeat an iterable dataset compares
# batches with samples, and so comes with batches of one only.
#
# A reader would guess: if len(loader) says 4 and 8 batches come, since both workers read everything, it warns.
#
# Seen, 10 samples, two workers: batches of 3 are 8 instead of 4, without a warning. Batches of 1 are 20 instead of
# 10, with one at each batch after the tenth.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import warnings

import torch


class Ten(torch.utils.data.IterableDataset):
    def __len__(self):
        return 10

    def __iter__(self):
        return iter(range(10))


def loaded(batch_size):
    loader = torch.utils.data.DataLoader(Ten(), batch_size=batch_size, num_workers=2)
    said = len(loader)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        batches = list(loader)
    lengths = [warning for warning in warned if "was reported to be" in str(warning.message)]
    return said, len(batches), len(lengths)


if __name__ == "__main__":
    three, one = loaded(3), loaded(1)
    print("len, batches, warnings:", three, one)
    assert three == (4, 8, 0) and one == (10, 20, 10)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
