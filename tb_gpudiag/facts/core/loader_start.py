"""The start of a data loader: what an epoch does before its first batch, and that batch."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, Window, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.core.threads import HostTree
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary import levels, operators, torch_frames
from tb_gpudiag.vocabulary.recorded import Category

# Starting workers takes 10 ms each, and their first batch as long as loading it.
TIMES_USUAL = 3
LEAST_NS = 1_000_000

# A job that makes a new iterator for every second batch or more often starts it in its steps.
HABIT = levels.HALF


@dataclass(frozen=True, eq=False)
class LoaderStarts:
    """When a thread started a loader: the main one, or else the one that fetches most batches.

    once: the starts of epochs, until their first batch came, as far as that took longer than for others. A
    loader without workers has none: its first batch takes as long as any other.
    in_steps: of a job that starts a loader for every second batch or more often, from each start to the
    fetch.
    fresh: the fetches whose loader was started for them (event indices).
    """

    once: Intervals = EMPTY
    in_steps: Intervals = EMPTY
    fresh: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    thread: int = NONE


def find_loader_starts(host: Host, work: Work, main: int) -> LoaderStarts:
    """Find when a thread started a loader and waited for its first batch.

    Of a single training step, autograd's thread may launch more than the one that fetches.

    An iterator of torch draws a seed (`empty`, `random_`, `item`), starts its workers, which no event shows,
    and waits for the first batch. What it does in each step is no start of an epoch.
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
    if fresh.sum() > 1 and fresh.sum() >= HABIT * len(fresh):
        return LoaderStarts(EMPTY, union(begins[fresh], start[fresh]), fetches[fresh], thread)
    if not fresh.any():
        return LoaderStarts()
    usual_ns = int(np.median(length[~fresh])) if not fresh.all() else 0
    until = end - np.minimum(usual_ns, length)
    once = (
        fresh
        & ~host.loads_in_process[fetches]
        & (until - begins >= np.maximum(LEAST_NS, (TIMES_USUAL - 1) * usual_ns))
    )
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
