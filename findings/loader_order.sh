#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): persistent_workers=True changes the order of the second and all later
# epochs, with the same seeded generator.
#
# A reader would guess: the sampler is in the main process, so the generator alone decides the order, and a
# comparison of two settings of workers reads the same batches.
#
# Seen: two epochs of 20 shuffled samples are the same without workers and with two. With persistent ones the first
# epoch is the same, the second is not: new workers draw a seed from the same generator, kept ones do not.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch


def epochs(**how):
    generator = torch.Generator().manual_seed(0)
    loader = torch.utils.data.DataLoader(range(20), shuffle=True, generator=generator, **how)
    return [[int(sample) for sample in loader] for _ in range(2)]


if __name__ == "__main__":
    alone, workers, kept = epochs(), epochs(num_workers=2), epochs(num_workers=2, persistent_workers=True)
    print([epoch[:5] for epoch in workers], [epoch[:5] for epoch in kept])
    assert alone == workers
    assert kept[0] == workers[0] and kept[1] != workers[1]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
