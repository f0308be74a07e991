#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): after an epoch that ends early, persistent workers first finish all that
# was prefetched, and nothing of it is used; new workers start sooner.
#
# A reader would guess: persistent workers make the next epoch start at once, and batches in flight are dropped.
#
# Seen, one worker with prefetch_factor=8, two batches taken: with persistent_workers=True the next iter() returns
# after batches 2 to 9 are loaded too, so after 1.6 s at 0.2 s a batch. Without, it loads one more at most, and the
# next epoch starts in a new worker.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import multiprocessing
import time

import torch


class Slow(torch.utils.data.Dataset):
    def __init__(self):
        self.highest = multiprocessing.Value("i", -1)

    def __len__(self):
        return 100

    def __getitem__(self, index):
        time.sleep(0.2)
        self.highest.value = max(self.highest.value, index)
        return index


def loaded_until_next_epoch(persistent):
    samples = Slow()
    loader = torch.utils.data.DataLoader(samples, num_workers=1, prefetch_factor=8, persistent_workers=persistent)
    batches = iter(loader)
    next(batches)
    next(batches)
    start = time.perf_counter()
    batches = None
    batches = iter(loader)
    took = time.perf_counter() - start
    highest = samples.highest.value
    assert int(next(batches)) == 0
    return highest, round(took, 2)


if __name__ == "__main__":
    persistent, new = loaded_until_next_epoch(True), loaded_until_next_epoch(False)
    print("last sample loaded when iter() returns, seconds since the end:", persistent, new)
    assert persistent[0] == 9 and new[0] < 5
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
