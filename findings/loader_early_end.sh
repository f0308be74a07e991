#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): after an epoch that ends early, persistent workers first finish all that
# was prefetched, and nothing of it is used; new workers start sooner.
#
# A reader would guess: persistent workers make the next epoch start at once, and batches in flight are dropped.
#
# Seen, 0.1 s a batch, one worker with prefetch_factor=8, two batches taken: the next iter() takes 0.8 s with
# persistent_workers=True, 0.1 s without (and dropping the old iterator 0.1 to 0.2 s). The wait is in iter(), of
# which the trace has no range: `enumerate(DataLoader)` is __next__ only.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import time

import torch
from torch.profiler import ProfilerActivity, profile


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        time.sleep(0.1)
        return index


def waits(persistent):
    loader = torch.utils.data.DataLoader(Slow(), num_workers=1, prefetch_factor=8, persistent_workers=persistent)
    batches = iter(loader)
    next(batches)
    next(batches)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        start = time.perf_counter()
        batches = None
        dropped = time.perf_counter()
        batches = iter(loader)
        end = time.perf_counter()
    ranges = [row.key for row in profiler.key_averages() if "DataLoader" in row.key]
    first = int(next(batches))
    return round(dropped - start, 2), round(end - dropped, 2), ranges, first


if __name__ == "__main__":
    persistent, new = waits(True), waits(False)
    print("seconds to drop, seconds of iter(), ranges, first batch:", persistent, new)
    assert persistent[1] > 0.6 and persistent[2:] == ([], 0)
    assert new[0] + new[1] < persistent[1] and new[2:] == ([], 0)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
