"""Kernels that the trace lacks although their launches are in it, and when those may have run.

The tracer loses records: in the first seconds while it starts, and where its buffers are full. Then a busy
GPU looks idle, and what the host did meanwhile looks like the cause.
"""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, mask_of
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, Window, clip, coverage, union
from tb_gpudiag.facts.core.launches import LOADING_CALL_NS, Work
from tb_gpudiag.facts.core.ledger import Ledger
from tb_gpudiag.facts.core.links import CLOCK_NS
from tb_gpudiag.facts.core.matching import match_some
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.core.steady import step_borders
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary import api_calls, levels
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, GPU_WORK_CATEGORIES

# Where as much work in the middle of the recording has no launch as launches have no work, the numbers that
# link the two are broken, and nothing is lost.
_LINKS_BROKEN = levels.HALF

# A wait for another stream than the lost kernels' returns while those still run: so do some waits for it.
_USUALLY = levels.MOST

# A step of which less is lost is judged as it is: its shares change by no more than this.
LOST_SHARE = levels.SIZEABLE


@dataclass(frozen=True, eq=False)
class LostWork:
    """Kernel launches without a kernel.

    lost: event indices of these launches. launches: of all launches that should have one.
    holes: from the return of such a launch to the completion of its kernel, as far as the trace bounds it.
    """

    events: Events
    lost: Int64
    launches: Int64
    holes: Intervals = EMPTY

    def lost_in(self, start_ns: Int64, end_ns: Int64) -> tuple[Bool, Bool]:
        """Masks of the stretches in which any launch and most launches lost their kernels, shape of
        `start_ns`."""
        lost, every = (
            np.searchsorted(at_ns, end_ns) - np.searchsorted(at_ns, start_ns)
            for at_ns in (self.events.start_ns[self.lost], self.events.start_ns[self.launches])
        )
        return lost > 0, 2 * lost >= every


def find_lost_work(host: Host, work: Work, captured: Int64, end_ns: int) -> LostWork:
    """Find them. captured: launches into a graph, which run nothing. end_ns: the recording's end.

    Copies and memsets say nothing: those of no bytes are calls without work.
    """
    events = host.events
    calls = events.where(*CALL_CATEGORIES)
    launches = calls[match_some(events, api_calls.KERNEL_LAUNCH, calls)]
    launches = launches[~np.isin(launches, captured)]
    # A launch of the driver's inside one of the runtime's is the same launch.
    launching = mask_of(launches, len(events))
    launches = launches[host.tree.outermost_of(launching)[launches] | (host.tree.depth[launches] == NONE)]
    lost = launches[~_answered(host, launches)]
    none = LostWork(events, launches[:0], launches)
    if not work.linked.any():
        return none
    later = ~work.linked & (work.start_ns > work.start_ns[work.linked].min())
    if int(later.sum()) >= _LINKS_BROKEN * len(lost):
        return none
    return LostWork(events, lost, launches, _holes(work, lost, end_ns))


def _answered(host: Host, launches: Int64) -> Bool:
    """Mask of the launches that GPU work names, or names a call inside of them, shape of `launches`."""
    events = host.events
    work = events.where(*GPU_WORK_CATEGORIES)
    calls = events.where(*CALL_CATEGORIES)
    named = np.zeros(len(events), np.bool_)
    for number in (events.correlation, events.external_id):
        known = number[work][number[work] > 0]
        named[calls] |= np.isin(number[calls], known)
        if named.any():  # external ids are the correlations of some recorders, and operators' ids of others
            break
    return (named | host.tree.any_below(named))[launches]


def _holes(work: Work, lost: Int64, end_ns: int) -> Intervals:
    """From the return of each lost launch, and the end of the work before it on its stream, to the start of
    the next work there, or to the return of the next wait for the GPU.

    A long call loaded the kernel's module or waited for room in a full queue: only the kernel would show
    which, so its own time is part of the hole."""
    events = work.events
    launched_ns = np.where(
        events.duration_ns[lost] >= LOADING_CALL_NS, events.start_ns[lost], events.end_ns[lost]
    )
    starts, ends = [], []
    for thread in np.unique(events.thread[lost]).tolist():
        some = events.thread[lost] == thread
        own, queue = lost[some], _queue(work, thread)
        launched = work.launch_start_ns[queue]
        done = np.r_[np.iinfo(np.int64).min, np.maximum.accumulate(work.end_ns[queue])]
        begins = np.r_[np.minimum.accumulate(work.start_ns[queue][::-1])[::-1], end_ns]
        at = np.searchsorted(launched, events.start_ns[own])
        waits = _emptying(events, launched, done)
        returned = np.r_[events.end_ns[waits], end_ns]
        returned = returned[np.searchsorted(events.start_ns[waits], events.end_ns[own])]
        starts.append(np.maximum(launched_ns[some], done[at]))
        ends.append(np.minimum(begins[at], np.minimum(returned, end_ns)))
    return union(np.concatenate(starts), np.concatenate(ends))


def _emptying(events: Events, launched: Int64, done: Int64) -> Int64:
    """Waits after which nothing is left on a stream, in order: for the device, and those for a stream after
    which all recorded work was done that was launched before, if that is so for most of them.

    launched, done: of the stream's work, in order of launch; done has an entry more, for none."""
    calls = events.where(*CALL_CATEGORIES)
    device = calls[match_some(events, api_calls.DEVICE_WAIT, calls)]
    stream = calls[match_some(events, api_calls.STREAM_WAIT, calls)]
    before = np.searchsorted(launched, events.start_ns[stream])
    empty = done[before] <= events.end_ns[stream] + CLOCK_NS
    usually = int((empty & (before > 0)).sum()) >= _USUALLY * int((before > 0).sum())
    return np.union1d(device, stream[empty]) if usually else device


def _queue(work: Work, thread: int) -> Int64:
    """Work on the stream for which a thread launches most, in order of launch; of any thread if the thread
    has none. The stream of a lost kernel is not known."""
    queue = work.by_launch
    own = queue[work.events.thread[work.launch[queue]] == thread]
    streams, count = np.unique(work.stream_key[own if len(own) else queue], return_counts=True)
    return queue[work.stream_key[queue] == streams[count.argmax()]]


def without_lost_ends(
    recorded: Window, steps: Steps, found: LostWork, ledger: Ledger, work: Work
) -> tuple[Window, Steps]:
    """Return the recording without the steps at its beginning and end whose kernels were lost; without steps,
    without the time before the first recorded work, if kernels were lost then. steps: in a row."""
    lost = Intervals(ledger.start_ns[ledger.lost], ledger.end_ns[ledger.lost])
    if not len(found.lost) or not lost.total:
        return recorded, steps
    if not len(steps):
        first = int(work.start_ns.min())
        cut = 2 * clip(lost, recorded.start_ns, first).total > first - recorded.start_ns
        return (Window(first, recorded.end_ns) if cut else recorded), steps
    start = steps.start_ns
    end = np.r_[start[1:], np.int64(recorded.end_ns)]
    spoiled = coverage(lost, start, end) >= LOST_SHARE * (end - start)
    masks = np.stack([*found.lost_in(start, end), spoiled])
    head, tail = _at_the_end(*masks), _at_the_end(*masks[:, ::-1])
    if head + tail >= len(steps):
        return recorded, steps
    whole = steps.take(slice(head, len(steps) - tail))
    ends_ns = int(step_borders(whole, work)[-1]) if tail else recorded.end_ns
    return Window(int(start[head]), ends_ns), whole


def _at_the_end(any_lost: Bool, most_lost: Bool, spoiled: Bool) -> int:
    """Count the steps from one end of which most launches lost their kernels, and those next to them that
    lack much time: the GPU runs later than the host launches."""
    some = _leading(most_lost)
    return some + _leading(spoiled[some:]) if any_lost[:some].any() else 0


def _leading(mask: Bool) -> int:
    """Count the True entries before the first other one."""
    return int(np.argmin(np.r_[mask, False]))
