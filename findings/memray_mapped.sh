#!/bin/bash
# memray 1.20.0 (torch 2.13.0, Python 3.11): memray counts a mapped file as allocated memory of its whole size.
#
# A reader would guess: the peak is memory that the program has; torch.load(mmap=True) is the way not to have it.
#
# Seen, weights of 200 MB of which 4 bytes are read: peak 200 MB with mmap=True as without, while the process grew by less
# than 20 MB with mmap=True, and by 200 MB without. So memray says that mapping weights saves nothing.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 memray==1.20.0
cat >"$work/see.py" <<'END'
import memray
import torch


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def loaded(mmap):
    """Return memray's peak and how much the process grew, in MB, by loading the weights and reading one."""
    name, before = f"{mmap}.bin", resident_bytes()
    with memray.Tracker(name):
        weights = torch.load("weights.pt", mmap=mmap)
        float(weights[0])
        grown = resident_bytes() - before
    return memray.FileReader(name).metadata.peak_memory / 1e6, grown / 1e6


torch.save(torch.ones(50_000_000), "weights.pt")
torch.save(torch.ones(1), "warm.pt")
torch.load("warm.pt", mmap=True)  # the first load of a process imports modules
mapped, copied = loaded(True), loaded(False)
print("memray's peak and growth of the process, MB; mmap=True:", mapped, "mmap=False:", copied)
assert 199 < mapped[0] < 210 and mapped[1] < 20
assert 199 < copied[0] < 210 and copied[1] > 190
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
