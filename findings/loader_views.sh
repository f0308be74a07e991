#!/bin/bash
# torch 2.13.0 (CPU build, Linux, Python 3.11): DataLoader workers that return a row of a tensor without collating it
# share the whole tensor, and what the training loop writes into a row changes their dataset.
#
# A reader would guess: what arrives is a copy of the row, of its size, and its owner may write into it.
#
# Seen, 50 rows of 1 MiB, one worker, batch_size=None: the storage of each row that arrives has 50 MiB. The worker's
# tensor itself moved to shared memory, so rows are not copied at all, one kept row keeps the 50 MiB, and each worker
# has its own 50 MiB there. After `row.add_(1)` in the loop, the second epoch of the persistent worker yields ones
# instead of zeros. With batch_size=1, collating makes copies: 1 MiB, and zeros in each epoch.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch

MIB = 2**20


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = torch.zeros(50, MIB // 4)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def seen(batch_size):
    """Add 1 to each row in two epochs; return the MiB of the last row's storage, and the values that arrived."""
    loader = torch.utils.data.DataLoader(Rows(), batch_size=batch_size, num_workers=1, persistent_workers=True)
    values = []
    for _ in range(2):
        arrived = set()
        for row in loader:
            arrived.add(float(row.max()))
            row.add_(1)
        values.append(arrived)
    return row.untyped_storage().nbytes() // MIB, values


rows, batches = seen(None), seen(1)
print("MiB of a storage, values of two epochs; rows:", rows, "batches of one:", batches)
assert rows == (50, [{0.0}, {1.0}]) and batches == (1, [{0.0}, {0.0}])
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
