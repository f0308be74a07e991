"""Which rows of a trace are kept: those at times of the recording, on devices that are read.

CUPTI writes 0 for a time that it does not have. Next to real timestamps, that is decades earlier: one such
event would stretch the recording over all of them. And facts are computed device by device: a file that names
thousands of devices would take minutes, and no process has so many.

Kernels that cannot have run for as long as the file says are cut.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64, mask_of
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.recorded import GPU_WORK_CATEGORIES

# All events this close to the median time of the trace are kept. Recordings take seconds to minutes, rarely
# hours. Kineto counts time from a date that changes every three months, so 0 is nearly always further away.
NEAR_NS: Final = 24 * 3_600 * 10**9

# Events are also kept if they are at most this many times as far from the median as half of all events. A
# recording of many days keeps all its events, unless half of them happened within two minutes.
FARTHEST: Final = 1_000


def reach(*times_ns: Int64) -> tuple[int, int]:
    """Return the first and last time that can be one of this recording."""
    times = np.concatenate(times_ns)
    if not len(times):
        return 0, 0
    middle = len(times) // 2
    median = int(np.partition(times, middle)[middle])
    distance = NEAR_NS
    if (int(times.max()) - int(times.min())) * FARTHEST > NEAR_NS:
        spread = int(np.partition(np.abs(times - median), middle)[middle])
        distance = max(NEAR_NS, FARTHEST * spread)
    return median - distance, median + distance


def within(times_ns: Int64, first_ns: int, last_ns: int) -> Bool:
    """Mask of the times from first to last. The bounds may exceed 64 bits."""
    limits = np.iinfo(np.int64)
    return (times_ns >= max(first_ns, limits.min)) & (times_ns <= min(last_ns, limits.max))


def settled(times_ns: Int64, first_ns: int, last_ns: int) -> tuple[Int64, int]:
    """Give each stray time the time of the row before it, or of the first row that has one.

    For rows in time order that cannot be skipped, because totals are computed from them. Return the times,
    shape (n,), and how many were stray.
    """
    near = within(times_ns, first_ns, last_ns)
    if near.all() or not near.any():
        return times_ns, 0
    row = np.maximum.accumulate(np.where(near, np.arange(len(near)), int(near.argmax())))
    return times_ns[row], int((~near).sum())


def note_of(stray: int) -> str:
    """Return the note about stray timestamps."""
    return (
        f"{stray:,} timestamps far from all others were replaced by those of the entries before them"
        if stray > 1
        else "one timestamp far from all others was replaced by that of the entry before it"
    )


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


def in_order(events: Events) -> tuple[Events, int]:
    """Return the events, and how many of a GPU's were cut where the next one of their stream begins."""
    work = events.where(*GPU_WORK_CATEGORIES)
    work = work[events.stream[work] != NONE]
    stream = (events.device[work].astype(np.int64) << 32) + events.stream[work]
    order = np.argsort(stream, kind="stable")  # events are in order of start
    work, stream = work[order], stream[order]
    outlasts = _outlasts(stream, events.end_ns[work])
    if not outlasts.any():
        return events, 0
    outlasts &= _launched_alone(events.correlation[work])
    cut, following = work[:-1][outlasts[:-1]], work[1:][outlasts[:-1]]
    duration_ns = events.duration_ns.copy()
    duration_ns[cut] = events.start_ns[following] - events.start_ns[cut]
    return replace(events, duration_ns=duration_ns), len(cut)


def _outlasts(stream: Int64, end_ns: Int64) -> Bool:
    """Mask of the work that ends after later work of its stream, in order of stream and start, shape (w,)."""
    found = np.zeros(len(stream), np.bool_)
    if not ((end_ns[1:] < end_ns[:-1]) & (stream[1:] == stream[:-1])).any():
        return found  # as usual
    # Streams one after the other, so that one pass finds the least end that is still to come in each.
    _, rank = np.unique(end_ns, return_inverse=True)
    ends = rank + np.cumsum(np.r_[False, stream[1:] != stream[:-1]]) * len(stream)
    least = np.minimum.accumulate(ends[::-1])[::-1]
    found[:-1] = ends[:-1] > least[1:]
    return found


def _launched_alone(correlation: Int64) -> Bool:
    """Mask of the work that no other work shares its launch with, shape of `correlation`."""
    _, number, count = np.unique(correlation, return_inverse=True, return_counts=True)
    return count[number] == 1
