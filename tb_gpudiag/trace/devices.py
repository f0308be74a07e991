"""How many devices of a trace are read.

Facts are computed device by device. A file that names thousands of devices would take minutes, and no process
has so many.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, mask_of

# A node has up to 16 GPUs.
MOST_DEVICES: Final = 64


def of_read_devices(device: Int32) -> tuple[Bool, int]:
    """Return a mask of the rows to keep, shape (n,), and how many devices the others are on.

    The devices with most rows are kept. Rows without a device (NONE) are kept.
    """
    if not len(device) or (device.min() >= NONE and device.max() < MOST_DEVICES):
        return np.ones(len(device), np.bool_), 0
    ids, own, rows = np.unique(device, return_inverse=True, return_counts=True)
    if len(ids) <= MOST_DEVICES:
        return np.ones(len(device), np.bool_), 0
    kept = mask_of(np.argsort(-np.where(ids == NONE, 0, rows), kind="stable")[:MOST_DEVICES], len(ids))
    left_out = int((~kept & (ids != NONE)).sum())
    kept |= ids == NONE
    mask: Bool = kept[own]
    return mask, left_out
