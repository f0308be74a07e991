"""Waits of one stream for another one's event, from Kineto's synchronization events (off by default)."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.intervals import places_of_each
from tb_gpudiag.facts.core.launches import Work, stream_keys
from tb_gpudiag.facts.core.matching import match_some
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.marks import STREAM_WAIT_EVENT
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category


@dataclass(frozen=True, eq=False)
class StreamWaits:
    """Waits whose event the trace knows. Shape (w,) each.

    recorded: the trace has synchronization events, with or without such waits.
    event: of the wait.
    made_ns: when the host made the stream wait.
    record_ns: when the host recorded the event that it waits for.
    """

    recorded: bool
    event: Int64
    made_ns: Int64
    record_ns: Int64

    def awaited(self, work: Work, chosen: Int64) -> Int64:
        """Return the event of the GPU work that each chosen work had to wait for, or NONE; shape of `chosen`.

        chosen: events of linked work. The wait was made after the launch before it on its stream, and the
        awaited work is the last one that was launched on the other stream before the event.
        """
        events = work.events
        found = np.full(len(chosen), NONE, np.int64)
        if not len(self.event):
            return found
        order = np.argsort(work.event, kind="stable")
        chosen = order[np.searchsorted(work.event[order], chosen)]
        source = _Sources(work)
        waits_of = dict(places_of_each(stream_keys(events, self.event)))
        linked = np.flatnonzero(work.linked)
        linked_of = dict(places_of_each(work.stream_key[linked]))
        for stream, mine in places_of_each(work.stream_key[chosen]):
            if stream not in waits_of:
                continue
            waits = waits_of[stream]
            waits = waits[np.argsort(self.made_ns[waits], kind="stable")]
            launched = np.sort(work.launch_start_ns[linked[linked_of[stream]]])
            begin = work.launch_start_ns[chosen[mine]]
            before = np.searchsorted(launched, begin, side="left") - 1
            previous = np.where(before >= 0, launched[np.maximum(before, 0)], np.iinfo(np.int64).min)
            last = np.searchsorted(self.made_ns[waits], begin, side="left") - 1
            fits = (last >= 0) & (self.made_ns[waits[np.maximum(last, 0)]] > previous)
            made = waits[last[fits]]
            awaited = events.forward_thread[self.event[made]].tolist()
            found[mine[fits]] = list(map(source.before, awaited, self.record_ns[made].tolist()))
        return found


class _Sources:
    """The work of each stream with a launch."""

    def __init__(self, work: Work) -> None:
        self._of_stream: dict[int, tuple[Int64, Int64]] = {}
        linked = np.flatnonzero(work.linked)
        for stream, own in places_of_each(work.events.stream[work.event[linked]]):
            # When the first launch of this work or of any after it began: ascending, so it can be searched.
            launched = np.minimum.accumulate(work.launch_start_ns[linked[own]][::-1])[::-1]
            self._of_stream[stream] = work.event[linked[own]], launched

    def before(self, stream: int, time_ns: int) -> int:
        """Return the event of the last work on the stream that was launched before the time, or NONE."""
        if stream not in self._of_stream:
            return NONE
        event, launched = self._of_stream[stream]
        at = int(np.searchsorted(launched, time_ns, side="left")) - 1
        return int(event[at]) if at >= 0 else NONE


@dataclass(frozen=True)
class Awaited:
    """Work that the work at the end of some gaps had to wait for."""

    device: int
    stream: int
    kernel: str
    gaps: int


def count_awaited(events: Events, awaited: Int64) -> list[Awaited]:
    """Count the awaited work by stream and kernel, most frequent first. awaited: events, or NONE."""
    found = Counter(
        (int(events.device[i]), int(events.stream[i]), events.names[events.name[i]])
        for i in awaited[awaited != NONE]
    )
    return [Awaited(*work, gaps) for work, gaps in found.most_common()]


def stream_waits(events: Events) -> StreamWaits:
    """Find the waits of streams for events, with the host calls that made and recorded them."""
    syncs = events.where(Category.CUDA_SYNC)
    waits = syncs[match_some(events, STREAM_WAIT_EVENT, syncs) & (events.sequence[syncs] > 0)]
    calls = events.where(*CALL_CATEGORIES)
    calls = calls[np.argsort(events.correlation[calls], kind="stable")]
    made, record = (
        _call_of(events, calls, wanted) for wanted in (events.correlation[waits], events.sequence[waits])
    )
    known = (made != NONE) & (record != NONE)
    waits, made, record = waits[known], made[known], record[known]
    return StreamWaits(bool(len(syncs)), waits, events.start_ns[made], events.start_ns[record])


def _call_of(events: Events, calls: Int64, wanted: Int64) -> Int64:
    """Return the call with each correlation, or NONE. calls: sorted by correlation."""
    at = np.searchsorted(events.correlation[calls], wanted)
    found = np.r_[events.correlation[calls], NONE][at] == wanted
    return np.where(found, np.r_[calls, NONE][at], NONE)
