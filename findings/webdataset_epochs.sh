#!/bin/bash
# webdataset 1.0.2 (torch 2.13.0, Python 3.11): `with_epoch(n)` of a dataset counts in each worker, and each epoch
# begins at the first shard again.
#
# A reader would guess: an epoch has n samples in all, and the next one goes on where it ended, as a stream that has no
# end needs it: that is what an epoch of a given size is for.
#
# Seen, two shards of 75 samples, with_epoch(100): 100 samples without workers and with one, 200 with two, as each
# worker takes 100 from its one shard of 75, so that 50 come twice. Without workers the second epoch has the samples of
# the first, in order: the last 50 of the 150 never come. With more workers than shards it raises. `resampled=True`
# draws shards anew, and with_epoch of a WebLoader counts batches in all.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q webdataset==1.0.2 torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import io
import tarfile

import torch
import webdataset

for shard in range(2):
    with tarfile.open(f"{shard}.tar", "w") as tar:
        for number in range(75):
            entry = tarfile.TarInfo(f"{shard}-{number:02d}.txt")
            entry.size = 1
            tar.addfile(entry, io.BytesIO(b"x"))


def name(sample):
    return sample["__key__"]


def epochs(workers):
    """Return the names of the samples of two epochs."""
    dataset = webdataset.WebDataset(["0.tar", "1.tar"], shardshuffle=False).map(name).with_epoch(100)
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers)
    return list(loader), list(loader)


for workers, samples, different in ((0, 100, 100), (1, 100, 100), (2, 200, 150)):
    first, second = epochs(workers)
    both = len({*first, *second})
    print("workers:", workers, "samples:", len(first), "different ones:", len(set(first)), "in two epochs:", both)
    assert len(first) == samples and len(set(first)) == both == different
    assert first == second
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
