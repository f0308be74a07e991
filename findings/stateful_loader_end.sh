#!/bin/bash
# torchdata 0.11.0 (torch 2.13.0, Python 3.11): a state of StatefulDataLoader that is taken in the loop after the last
# batch resumes with an epoch of no batches; one that is taken after the loop, with the next epoch.
#
# A reader would guess: both say that the epoch is at its end, and the loader that loads one begins the next epoch.
#
# Seen, 4 batches, with and without workers: a loop that saves after every second batch saves after the fourth, and
# the first epoch of the resumed loader is empty, the second whole; of the state after the loop both are whole. So a
# training loop that has counted the epoch with the checkpoint loses one, and a mean over its batches divides by 0.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torchdata==0.11.0 torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
from torchdata.stateful_dataloader import StatefulDataLoader


def loader(workers):
    return StatefulDataLoader(range(8), batch_size=2, num_workers=workers)


def resumed(state, workers):
    """Return the number of batches of the next two epochs."""
    again = loader(workers)
    again.load_state_dict(state)
    return [len(list(again)) for _ in range(2)]


if __name__ == "__main__":
    for workers in (0, 2):
        first, states = loader(workers), {}
        for step, _ in enumerate(first, 1):
            if step % 2 == 0:
                states[f"in the loop, step {step}"] = first.state_dict()
        states["after the loop"] = first.state_dict()
        seen = {when: resumed(state, workers) for when, state in states.items()}
        print("workers:", workers, "batches after resuming:", seen)
        assert seen == {"in the loop, step 2": [2, 4], "in the loop, step 4": [0, 4], "after the loop": [4, 4]}
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
