"""Stretches of the host's time whose cause their calls and marks say: captures of CUDA and HIP graphs, in
which the host records launches and none of them runs; the start of a data loader, which is what an epoch does
before its first batch, and that batch; and the waits of an inference server for something to run.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, median
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, Window, coverage, merged, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match, match_some, occurs
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.core.threads import HostTree
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events, is_id
from tb_gpudiag.vocabulary import api_calls, engines, marks, operators, torch_frames
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, GPU_WORK_CATEGORIES, Category

# Captured in one call and then replayed is usual. Captured anew in a third call, after replays, is not.
_AGAIN: Final = 3


@dataclass(frozen=True, eq=False)
class Captures:
    """When the host captured, and which calls it captured (event indices).

    recur: captures go on in later steps, or between replays, so they are no set-up.
    """

    times: Intervals = EMPTY
    launches: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    recur: bool = False


def find_captures(events: Events, steps: Steps) -> Captures:
    """Find the stretches between the calls that begin and end a capture, each on one thread, and those that
    inference servers mark. A capture may have begun before the recording, or end after it. What runs all the
    same, such as a warm-up inside of a mark, is not captured."""
    calls = events.where(*CALL_CATEGORIES)
    begins = calls[match_some(events, api_calls.CAPTURE_BEGIN, calls)]
    ends = calls[match_some(events, api_calls.CAPTURE_END, calls)]
    marked = np.flatnonzero(match(events, marks.CAPTURE) & (events.category == Category.USER_ANNOTATION))
    if not len(begins) + len(ends) + len(marked):
        return Captures()
    launches = calls[match_some(events, api_calls.LAUNCH_CALL, calls)]
    ran = events.correlation[events.where(*GPU_WORK_CATEGORIES)]
    launches = launches[~np.isin(events.correlation[launches], ran[is_id(ran)])]
    captured, times = [], []
    for thread in np.unique(events.thread[np.r_[begins, ends, marked]]).tolist():
        own = union(*_between(events, begins, ends, thread))
        on_thread = marked[events.thread[marked] == thread]
        own = merged(own, union(events.start_ns[on_thread], events.end_ns[on_thread]))
        own = merged(own, _compiled_calls(events, thread, own))
        times.append(own)
        some = launches[events.thread[launches] == thread]
        captured.append(some[coverage(own, events.start_ns[some], events.start_ns[some] + 1) > 0])
    all_times = merged(*times)
    replays = calls[match_some(events, api_calls.GRAPH_LAUNCH, calls)]
    recur = _recur(all_times, steps) if len(steps) else _between_replays(all_times, events.start_ns[replays])
    return Captures(all_times, np.concatenate(captured), recur)


def _compiled_calls(events: Events, thread: int, captures: Intervals) -> Intervals:
    """Calls of compiled code in which something is captured: all of such a call prepares the graph."""
    inside = (events.thread == thread) & match(events, marks.COMPILED_CODE)
    inside &= np.isin(events.category, (Category.CPU_OP, Category.USER_ANNOTATION))
    called = union(events.start_ns[inside], events.end_ns[inside])
    captures_something = coverage(captures, called.start, called.end) > 0
    return Intervals(called.start[captures_something], called.end[captures_something])


def _between(events: Events, begins: Int64, ends: Int64, thread: int) -> tuple[Int64, Int64]:
    """From each begin on a thread to the next end, or to the thread's last event; and from the thread's first
    event to an end without a begin."""
    own = np.flatnonzero(events.thread == thread)
    begun = np.sort(events.start_ns[begins[events.thread[begins] == thread]])
    ended = np.sort(events.end_ns[ends[events.thread[ends] == thread]])
    until = np.r_[ended, events.end_ns[own].max()]
    stops = until[np.searchsorted(ended, begun)]
    before = ended[:1][ended[:1] <= np.r_[begun, np.iinfo(np.int64).max][0]]
    return np.r_[np.full(len(before), events.start_ns[own].min()), begun], np.r_[before, stops]


def _recur(times: Intervals, steps: Steps) -> bool:
    """Whether most of several steps capture."""
    capturing: Bool = coverage(times, steps.start_ns, steps.end_ns) > 0
    return len(steps) > 1 and 2 * int(capturing.sum()) > len(steps)


def _between_replays(times: Intervals, replays_ns: Int64) -> bool:
    """Whether graphs are captured again and again while the job replays them: servers capture all of theirs
    before they serve."""
    after = np.searchsorted(np.sort(replays_ns), times.end)
    return len(np.unique(after)) >= _AGAIN


# Starting workers takes 10 ms each, and their first batch as long as loading it.
TIMES_USUAL = 3
LEAST_NS = 1_000_000


@dataclass(frozen=True, eq=False)
class LoaderStarts:
    """When a thread started a loader: the main one, or else the one that fetches most batches.

    once: the only start until its first batch came, as far as that took longer than for others. A loader
    without workers has none: its first batch takes as long as any other.
    again: of a job that starts loaders again, as for each epoch, from each start until its first batch came.
    fresh: the fetches whose loader was started for them (event indices).
    """

    once: Intervals = EMPTY
    again: Intervals = EMPTY
    fresh: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    thread: int = NONE


def find_loader_starts(host: Host, work: Work, main: int) -> LoaderStarts:
    """Find when a thread started a loader and waited for its first batch.

    Of a single training step, autograd's thread may launch more than the one that fetches.

    An iterator of torch draws a seed (`empty`, `random_`, `item`), starts its workers, which no event shows,
    and waits for the first batch.
    """
    events = host.events
    far = np.iinfo(np.int64)
    fetches = host.loads(Window(far.min, far.max))
    fetches = fetches[~host.own_loader[fetches]]
    if not len(fetches):
        return LoaderStarts()
    threads = events.thread[fetches]
    thread = main if (threads == main).any() else int(np.bincount(threads).argmax())
    fetches = fetches[threads == thread]
    fetches = fetches[np.argsort(events.start_ns[fetches], kind="stable")]
    start, end = events.start_ns[fetches], events.end_ns[fetches]
    begins, fresh = _begins(host, work, thread, start, end)
    length = end - start
    if not fresh[0] and len(fetches) > 2 and length[0] >= TIMES_USUAL * length[1:].max():
        fresh[0] = True  # no event shows how it began
    # Of a GPU's steps, the only one that starts a loader is left out: epochs may be long.
    if fresh.sum() > 1 or (fresh[1:].any() and not len(work.by_launch)):
        return LoaderStarts(EMPTY, union(begins[fresh], end[fresh]), fetches[fresh], thread)
    usual_ns = int(median(length[~fresh]))
    until = end - np.minimum(usual_ns, length)
    once = fresh & ~host.loads_in_process[fetches]
    once &= until - begins >= np.maximum(LEAST_NS, (TIMES_USUAL - 1) * usual_ns)
    return LoaderStarts(union(begins[once], until[once]), EMPTY, fetches[fresh], thread)


def _begins(host: Host, work: Work, thread: int, start: Int64, end: Int64) -> tuple[Int64, Bool]:
    """Return when each fetch, or the start of its loader before it, began; and the mask of those whose loader
    was started. Shape (b,) each."""
    events = host.events
    frames = (events.category == Category.PYTHON_FUNCTION) & match(events, torch_frames.LOADER_START)
    frames &= events.thread == thread
    marks = np.sort(np.r_[events.start_ns[frames], _seeds(events, host.tree, thread)])
    launched = work.launch_start_ns[work.by_launch]
    since = np.r_[np.iinfo(np.int64).min, end[:-1]]
    first = np.searchsorted(marks, since)
    fresh = np.searchsorted(marks, start, side="right") > first
    begins = np.where(fresh, np.r_[marks, 0][first], start)
    # Work between the two is the job's: the seed was drawn for something else.
    idle = np.searchsorted(launched, start) == np.searchsorted(launched, begins)
    return np.where(idle, begins, start), fresh & idle


def _seeds(events: Events, tree: HostTree, thread: int) -> Int64:
    """When the thread drew a random number on the CPU and read it, as a loader does for its workers."""
    operator = events.category == Category.CPU_OP
    outer = np.flatnonzero(tree.outermost_of(operator & (events.thread == thread)))
    outer = outer[np.argsort(events.start_ns[outer], kind="stable")]
    empty, draw, read = (match(events, name)[outer] for name in operators.SEED)
    drawn = empty[:-2] & draw[1:-1] & read[2:]
    return events.start_ns[outer[:-2][drawn]]


@dataclass(frozen=True)
class RequestWaits:
    """The waits, by thread.

    for_engine: a worker waited for its engine's process, so it is not known whether a request was there.
    """

    by_thread: dict[int, Intervals] = field(default_factory=dict)
    for_engine: bool = False


def find_request_waits(host: Host) -> RequestWaits:
    """Find the waits. SGLang's scheduler polls: from one round that found no request to the next one, it
    waits, unless it launches something in between."""
    events = host.events
    patterns = engines.NOTHING_TO_SERVE, engines.INPUT_QUEUE, engines.WORKER_WAITS
    if not any(occurs(events, pattern) for pattern in patterns):
        return RequestWaits()
    tree = host.tree
    blocked = match(events, engines.BLOCKED)
    engine = tree.under(match(events, engines.INPUT_QUEUE)) & blocked
    worker = tree.under(match(events, engines.WORKER_LOOP)) & match(events, engines.WORKER_WAITS)
    idle = match(events, engines.NOTHING_TO_SERVE)
    found: dict[int, Intervals] = {}
    waits = np.flatnonzero((engine | worker | idle) & (events.category == Category.PYTHON_FUNCTION))
    for thread in np.unique(events.thread[waits]).tolist():
        own = waits[events.thread[waits] == thread]
        rounds = own[idle[own]]
        start, end = _polled(events, rounds, thread)
        single = own[~idle[own]]
        found[thread] = union(np.r_[events.start_ns[single], start], np.r_[events.end_ns[single], end])
    return RequestWaits(found, for_engine=bool(worker.any()))


def _polled(events: Events, rounds: Int64, thread: int) -> tuple[Int64, Int64]:
    """Return the stretches of rounds between which the thread launches nothing."""
    calls = events.where(*CALL_CATEGORIES)
    calls = calls[events.thread[calls] == thread]
    launched = events.start_ns[calls[match_some(events, api_calls.LAUNCH_CALL, calls)]]
    start, end = events.start_ns[rounds], np.maximum.accumulate(events.end_ns[rounds])
    after = np.searchsorted(launched, start, side="right")
    before = np.searchsorted(launched, end, side="left")
    breaks = after[1:] > before[:-1]
    first, last = np.r_[True, breaks][: len(rounds)], np.r_[breaks, True][: len(rounds)]
    return start[first], end[last]
