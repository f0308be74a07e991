#!/bin/bash
# grain 0.2.18 (numpy 2.4.6, Python 3.11): workers make other batches than the process itself does, and each of them has
# its own rest.
#
# A reader would guess: as with torch's DataLoader, the number of workers changes the speed: the same batches, in order.
#
# Seen, 0 to 9 in batches of 4: without workers 0-3, 4-7, 8-9. With two workers 0, 2, 4, 6, then 1, 3, 5, 7, then 8,
# then 9: each worker reads every second element and batches its own. drop_remainder loses 2 of 10 without workers, and
# all of them with four. So the number of steps, and what a seed trains on, change with worker_count. It is so for
# DataLoader and for mp_prefetch after batch; batch after mp_prefetch makes the same batches with any number of workers.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q grain==0.2.18 numpy==2.4.6
cat >"$work/see.py" <<'END'
import logging

import grain
from grain.multiprocessing import MultiprocessingOptions

logging.disable(logging.CRITICAL)


def loaded(workers, **how):
    """Return the batches of a DataLoader."""
    sampler = grain.samplers.IndexSampler(10, shard_options=grain.sharding.NoSharding(), num_epochs=1, shuffle=False)
    batch = grain.transforms.Batch(4, **how)
    loader = grain.DataLoader(data_source=range(10), sampler=sampler, operations=[batch], worker_count=workers)
    return [batch.tolist() for batch in loader]


if __name__ == "__main__":
    two = MultiprocessingOptions(num_workers=2)
    numbers = grain.MapDataset.range(10).to_iter_dataset()
    before = [batch.tolist() for batch in numbers.batch(4).mp_prefetch(two)]
    after = [batch.tolist() for batch in numbers.mp_prefetch(two).batch(4)]
    alone, workers = loaded(0), loaded(2)
    dropped = [sum(map(len, loaded(count, drop_remainder=True))) for count in (0, 2, 4)]
    print("no workers:", alone, "two:", workers, "kept by drop_remainder with 0, 2, 4 workers:", dropped)
    print("batch before mp_prefetch:", before, "after:", after)
    assert alone == after == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert workers == before == [[0, 2, 4, 6], [1, 3, 5, 7], [8], [9]] and dropped == [8, 8, 0]
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py 2>log || { cat log; exit 1; }  # workers log that they miss jax
