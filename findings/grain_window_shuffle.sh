#!/bin/bash
# grain 0.2.18 (numpy 2.4.6, Python 3.11): WindowShuffleMapDataset loses elements and repeats others if its window does
# not divide the dataset; WindowShuffleIterDataset does not.
#
# A reader would guess: both are permutations: the last window is a smaller one.
#
# Seen, ten elements in windows of 3: element 9 is not there and another one is twice, for each of ten seeds; in windows
# of 4, 8 or 9 or both are lost. The last window is shuffled as if it were whole, and an index past the end begins at
# the front again (in grain dataset[10] of ten elements is dataset[0], no IndexError). Windows of 5, and the iterator's
# shuffle, lose none.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q grain==0.2.18 numpy==2.4.6
cat >"$work/see.py" <<'END'
import logging

import grain
from grain.experimental import WindowShuffleIterDataset, WindowShuffleMapDataset

logging.disable(logging.CRITICAL)


def lost(window, seed):
    """Return the elements of 0 to 9 that are in no window of the map dataset, and those of the iterator."""
    whole = grain.MapDataset.range(10)
    by_index = list(WindowShuffleMapDataset(whole, window_size=window, seed=seed))
    in_turn = list(WindowShuffleIterDataset(whole.to_iter_dataset(), window_size=window, seed=seed))
    assert len(by_index) == len(in_turn) == 10
    return sorted(set(range(10)) - {int(x) for x in by_index}), sorted(set(range(10)) - {int(x) for x in in_turn})


for window in (3, 4, 5):
    maps, iterators = zip(*(lost(window, seed) for seed in range(10)))
    print("window:", window, "lost by seed; map:", maps, "iterator:", iterators)
    assert not any(iterators) and any(maps) == (window != 5)
print("dataset[10]:", grain.MapDataset.range(10)[10])
assert lost(3, 0) == ([9], []) and lost(4, 1) == ([8, 9], [])
assert grain.MapDataset.range(10)[10] == 0
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
