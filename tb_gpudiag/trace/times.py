"""Times of a trace: which rows lie in the recording, on devices that are read; and what started GPU work on
the host, whose clock GPUs' times are put on.

CUPTI writes 0 for a time that it does not have. Next to real timestamps, that is decades earlier: one such
event would stretch the recording over all of them. And facts are computed device by device: a file that names
thousands of devices would take minutes, and no process has so many.

Kernels that cannot have run for as long as the file says are cut.

No kernel begins before the call that launches it. A call that waits for the GPU returns after all that was
launched before it has ended, and kernels for an idle GPU begin at once. So each launch tells how much must be
added to a GPU's times at least; such waits and kernels, how much at most. Where nothing fits all, nothing is
changed. Neither is it where the times fit as they are.

These are the bounds of Cristian (Probabilistic clock synchronization, Distributed Computing 3, 1989). As in
NTP (RFC 5905, section 10), the messages with the least delay decide. One offset a device is enough: where a
GPU is idle again and again, its least delay stays the same within a few µs for up to 3.4 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64, mask_of
from tb_gpudiag.trace.events import Events, is_id
from tb_gpudiag.vocabulary.api_calls import DEVICE_WAIT, STREAM_WAIT
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, GPU_WORK_CATEGORIES, Category

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


def launches(events: Events, work: Int64) -> Int64:
    """Return the call that launched each GPU work, as event indices, or NONE. Shape of work.

    An id decides, and not the time: clocks of host and GPU may differ. Some of ROCm's recorders write the
    correlation as external id, and no correlation.
    """
    calls = events.where(*CALL_CATEGORIES)
    correlation, external = events.correlation, events.external_id
    launch = with_id(correlation[work], calls, correlation[calls])
    bare = np.flatnonzero((launch == NONE) & ~is_id(correlation[work]) & is_id(external[work]))
    if len(bare):
        calls = calls[~is_id(correlation[calls])]
        launch[bare] = with_id(external[work[bare]], calls, external[calls])
    return launch


def with_id(wanted: Int64, events: Int64, ids: Int64) -> Int64:
    """Return the first event with each wanted id, or NONE. Shape of wanted. 0 and NONE join
    nothing."""
    found = np.full(len(wanted), NONE, np.int64)
    events, ids = events[is_id(ids)], ids[is_id(ids)]
    order = np.argsort(ids, kind="stable")
    events, ids = events[order], ids[order]
    if len(events):
        at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        fits = ids[at] == wanted
        found[fits] = events[at[fits]]
    return found


# In 60 recordings, a kernel begins at least 3.4 to 26 µs after its call does, and a wait returns at least 2
# to 26 µs after the last kernel has ended; the median of both is 6 µs.
LEAST_DELAY_NS: Final = 6_000

# Where ten kernels that were not queued have the least delay but for 6 µs, it is 3.4 to 19.2 µs (of 22 GPUs,
# in 60 recordings): kernels that were queued rarely have it twice. Up to this, a slow driver may be why.
MOST_DELAY_NS: Final = 50_000
ENOUGH_KERNELS: Final = 10
NOT_QUEUED_NS: Final = 10_000  # after the work before it

# The clocks that were seen were up to 0.2 ms apart. Much more is no clock: ids that mean something else, or
# kernels whose duration overflowed.
MOST_NS: Final = 1_000_000


def on_host_clock(events: Events) -> tuple[Events, Mapping[int, int]]:
    """Return the events, and the ns that were added to the times of each GPU whose clock was wrong."""
    offsets = {device: ns for device, ns in _offsets(events).items() if ns}
    if not offsets:
        return events, offsets
    gpu = events.among(*GPU_WORK_CATEGORIES, Category.GPU_USER_ANNOTATION)
    start_ns = events.start_ns.copy()
    # Some annotations do not say on which GPU they are.
    for device, ns in [*offsets.items(), (NONE, max(offsets.values(), key=abs))]:
        start_ns[gpu & (events.device == device)] += ns
    start_ns = np.maximum(start_ns, 0)
    order = np.argsort(start_ns, kind="stable")
    columns = {field.name: getattr(events, field.name) for field in fields(events)} | {"start_ns": start_ns}
    columns |= {name: column[order] for name, column in columns.items() if isinstance(column, np.ndarray)}
    return Events(**columns), offsets


def _offsets(events: Events) -> dict[int, int]:
    """Return device -> ns to add to its times; 0 where its clock can be right."""
    work = events.where(*GPU_WORK_CATEGORIES)
    call = launches(events, work)
    work, call = work[call != NONE], call[call != NONE]
    waits = _waits(events, work)
    found = {}
    for device in np.unique(events.device[work]).tolist():
        own = events.device[work] == device
        least = float((events.start_ns[call[own]] - events.start_ns[work[own]]).max())
        most = min(_most(events, work[own], call[own], waits), _most_delayed(events, work[own], call[own]))
        delay = min(LEAST_DELAY_NS, (most - least) / 2)
        wrong = least <= most and not least <= 0 <= most
        offset = round(float(np.clip(0, least + delay, most - delay))) if wrong else 0
        found[device] = offset if abs(offset) <= MOST_NS else 0
    return found


def _waits(events: Events, work: Int64) -> Int64:
    """Return the calls that wait for all of the work: a call does not say for which device or stream."""
    streams = np.unique(events.device[work].astype(np.int64) << 32 | events.stream[work])
    if len(np.unique(streams >> 32)) != 1:
        return work[:0]
    kinds = [DEVICE_WAIT, STREAM_WAIT] if len(streams) == 1 else [DEVICE_WAIT]
    calls = events.where(*CALL_CATEGORIES)
    return calls[np.any([events.matcher.matches(kind) for kind in kinds], axis=0)[events.name[calls]]]


def _most_delayed(events: Events, work: Int64, call: Int64) -> float:
    """Return how much can be added, if kernels that are not queued begin too late for any driver."""
    start_ns = events.start_ns[work]
    delay_ns = start_ns - events.start_ns[call]
    free_ns = start_ns[1:] - np.maximum.accumulate(events.end_ns[work])[:-1]
    soon = delay_ns[1:][free_ns >= NOT_QUEUED_NS] <= delay_ns.min() + LEAST_DELAY_NS
    late = soon.sum() >= ENOUGH_KERNELS and delay_ns.min() > MOST_DELAY_NS
    return float(2 * LEAST_DELAY_NS - delay_ns.min()) if late else 2**62


def _most(events: Events, work: Int64, call: Int64, waits: Int64) -> float:
    """Return how long before a wait returns all that was launched before it has ended, at least."""
    order = np.argsort(events.end_ns[call], kind="stable")
    launched_ns, ended_ns = events.end_ns[call[order]], np.maximum.accumulate(events.end_ns[work[order]])
    before = np.searchsorted(launched_ns, events.start_ns[waits], side="right") - 1
    return float((events.end_ns[waits] - ended_ns[before])[before >= 0].min(initial=2**62))
