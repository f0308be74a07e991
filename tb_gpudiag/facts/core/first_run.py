"""First-run work on the host: what a process does once, and steady steps never."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import coverage, places_of_each, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match_some
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.api_calls import ALLOCATOR_CALL, INITIALIZING_CALL, MODULE_LOAD_CALL
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category

# Once a context exists, device queries and stream creation take 1-100 us in public traces. The call that
# creates the context or loads a library takes 10 ms to 30 s.
ONE_TIME_NS = 1_000_000

# A process's first cudaMalloc or cudaFree sets up the driver's memory (cudaFree(0) is a common way to create
# the context). Later ones take up to a few milliseconds.
FIRST_ALLOCATOR_CALL_NS = 10_000_000

# A cold pass that still loads GPU code keeps using new kernels. In a job that repeats its work, up to 3% of
# the later launches are first uses (simulated), even if each repetition brings a new kernel.
COLD_FIRST_USES = 0.05

# Without step marks, loads go on if the second half of the launches has at least half of its fair share.
RECURRING_SHARE = 0.25

# An operator that spends this much of its time in first-run calls is first-run work as a whole: between the
# calls it reads the library from disk.
MOSTLY = 0.5


def first_run(host: Host, work: Work, steps: Steps) -> Bool:
    """Mask of host events that are first-run work or happen inside it, shape (n,).

    Loading GPU code counts unless it goes on in the second half of the recorded steps, or of the launches if
    no steps were recorded. Then it is part of every step: dynamic shapes load new kernels again and again."""
    events = host.events
    calls = events.where(*CALL_CATEGORIES)
    long = calls[events.duration_ns[calls] >= ONE_TIME_NS]
    found = np.zeros(len(events), np.bool_)
    if not len(long):
        return found
    found[long[match_some(events, INITIALIZING_CALL, long)]] = True
    found[_first_allocator_calls(events, calls)] = True
    # Module loads, and the first launch of a kernel.
    loads = long[match_some(events, MODULE_LOAD_CALL, long) | work.loads_module[long]]
    if not _recurs(loads, work, steps):
        found[loads] = True
    if not found.any():
        return found
    found[_operators_around(events, np.flatnonzero(found))] = True
    return host.tree.under(found)


def _recurs(loads: Int64, work: Work, steps: Steps) -> bool:
    events = work.events
    if not len(loads):
        return False
    spent_ns = events.duration_ns[loads]
    if len(steps):
        late = events.start_ns[loads] >= np.sort(steps.start_ns)[len(steps) // 2]
        return int(spent_ns[late].sum()) >= ONE_TIME_NS
    launched = work.by_launch
    second_half = launched[len(launched) // 2 :]
    if not len(second_half) or work.first_use[second_half].mean() >= COLD_FIRST_USES:
        return False
    late = events.start_ns[loads] >= work.launch_start_ns[second_half[0]]
    return int(spent_ns[late].sum()) >= max(ONE_TIME_NS, RECURRING_SHARE * int(spent_ns.sum()))


def _first_allocator_calls(events: Events, calls: Int64) -> Int64:
    """The first call of each allocator function, if it took far longer than such calls usually do."""
    allocating = calls[match_some(events, ALLOCATOR_CALL, calls)]
    allocating = allocating[np.argsort(events.start_ns[allocating], kind="stable")]
    first = allocating[np.unique(events.name[allocating], return_index=True)[1]]
    return first[events.duration_ns[first] >= FIRST_ALLOCATOR_CALL_NS]


def _operators_around(events: Events, calls: Int64) -> Int64:
    """Operators that spend most of their time in these calls."""
    operators = events.where(Category.CPU_OP)
    operators = operators[events.duration_ns[operators] >= ONE_TIME_NS]
    found = [np.zeros(0, np.int64)]
    of_thread = dict(places_of_each(events.thread[operators]))
    for thread, places in places_of_each(events.thread[calls]):
        own, around = calls[places], operators[of_thread.get(thread, operators[:0])]
        spent = coverage(
            union(events.start_ns[own], events.end_ns[own]), events.start_ns[around], events.end_ns[around]
        )
        found.append(around[spent >= MOSTLY * events.duration_ns[around]])
    return np.concatenate(found)
