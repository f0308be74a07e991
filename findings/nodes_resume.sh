#!/bin/bash
# torchdata 0.11.0 (torch 2.13.0, Python 3.11): a shuffled pipeline of torchdata.nodes that resumes in an epoch reads
# samples again and loses others.
#
# A reader would guess: the state has all that the order depends on, as that of StatefulDataLoader with shuffle=True.
#
# Seen, 10 samples, a state after 4: SamplerWrapper of a RandomSampler shuffles anew and skips 4 of the new order, so
# what was read before comes again, and as many samples are not in the epoch; nothing warns. It is the same with
# torchdata's own RandomSampler. With a generator of the same seed the first epoch is whole; StatefulDataLoader needs
# none.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torchdata==0.11.0 torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torchdata.nodes import Loader, SamplerWrapper
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import RandomSampler

SAMPLES = range(10)


def nodes(sampler, seeded=False):
    return Loader(SamplerWrapper(sampler(SAMPLES, generator=torch.Generator().manual_seed(3) if seeded else None)))


def epoch(make):
    """Return the samples of an epoch with a break after 4, of which a new process, with another seed, goes on."""
    torch.manual_seed(1)
    loader = make()
    batches = iter(loader)
    start = [int(next(batches)) for _ in range(4)]
    state = loader.state_dict()
    torch.manual_seed(9)
    resumed = make()
    resumed.load_state_dict(state)
    return start, [int(sample) for sample in resumed]


makers = {
    "torch's sampler": lambda: nodes(torch.utils.data.RandomSampler), "torchdata's": lambda: nodes(RandomSampler),
    "a seeded generator": lambda: nodes(RandomSampler, True),
    "StatefulDataLoader": lambda: StatefulDataLoader(SAMPLES, batch_size=None, shuffle=True),
}
for name, make in makers.items():
    start, rest = epoch(make)
    twice, lost = set(start) & set(rest), set(SAMPLES) - set(start) - set(rest)
    print(f"{name}: {start} + {rest}, twice: {sorted(twice)}, lost: {sorted(lost)}")
    assert len(rest) == 6 and len(twice) == len(lost) == (3 if name in ("torch's sampler", "torchdata's") else 0)
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
