"""Join GPU work to what started it on the host, and put the GPUs' times on the host's clock, where a
recording shows that they are not.

No kernel begins before the call that launches it, and a call that waits for the GPU returns after all that
was launched before it has ended. So each launch tells how much must be added to a GPU's times at least, and
each such wait, how much at most. Where nothing fits both, nothing is changed. Neither is it where the times
fit as they are: a clock that is late by less than the shortest wait looks like latency.

These are the bounds of Cristian (Probabilistic clock synchronization, Distributed Computing 3, 1989). As in
NTP (RFC 5905, section 10), the messages with the least delay decide. One offset a device is enough: where a
GPU is idle again and again, its least delay stays the same within a few µs for up to 3.4 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.trace.events import Events, is_id
from tb_gpudiag.vocabulary.api_calls import DEVICE_WAIT, STREAM_WAIT
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, GPU_WORK_CATEGORIES, Category


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
        most = _most(events, work[own], call[own], waits)
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


def _most(events: Events, work: Int64, call: Int64, waits: Int64) -> float:
    """Return how long before a wait returns all that was launched before it has ended, at least."""
    order = np.argsort(events.end_ns[call], kind="stable")
    launched_ns, ended_ns = events.end_ns[call[order]], np.maximum.accumulate(events.end_ns[work[order]])
    before = np.searchsorted(launched_ns, events.start_ns[waits], side="right") - 1
    return float((events.end_ns[waits] - ended_ns[before])[before >= 0].min(initial=2**62))
