#!/bin/bash
# torchdata 0.11.0 (torch 2.13.0, Python 3.11): a StatefulDataLoader with a generator of its own resumes the epoch, and
# shuffles all later ones otherwise than without the break; not so with workers, or without a generator.
#
# A reader would guess: the state has the generator's, and seeding one is what makes the order sure.
#
# Seen, 12 samples, a state after 3 of 6 batches: the rest of the epoch is the same in all cases. The next epochs are
# the same too with the global generator, or with two workers; without workers and with generator=... both are
# others. So a resumed run can't be compared with one that was not interrupted, from the next epoch on.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torchdata==0.11.0 torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torchdata.stateful_dataloader import StatefulDataLoader


def loader(seed, own, workers):
    """Return a loader that shuffles, by a generator of its own or by the global one."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed) if own else None
    return StatefulDataLoader(range(12), batch_size=2, shuffle=True, generator=generator, num_workers=workers)


def samples(batches):
    return [int(sample) for batch in batches for sample in batch]


def same_epochs(seed, own, workers):
    """Return which of three epochs are the same after a break in the first one."""
    whole = loader(seed, own, workers)
    without = [samples(whole) for _ in range(3)]
    whole = loader(seed, own, workers)
    batches = iter(whole)
    start = samples(next(batches) for _ in range(3))
    state = whole.state_dict()
    resumed = loader(seed + 100, own, workers)
    resumed.load_state_dict(state)
    after = [start + samples(resumed), samples(resumed), samples(resumed)]
    return [one == other for one, other in zip(without, after)]


if __name__ == "__main__":
    for own in (False, True):
        for workers in (0, 2):
            seen = [same_epochs(seed, own, workers) for seed in range(3)]
            print("generator of its own:", own, "workers:", workers, "same epochs, by seed:", seen)
            assert seen == [[True, False, False] if own and not workers else [True] * 3] * 3
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
