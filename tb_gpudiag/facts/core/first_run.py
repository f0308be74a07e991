"""First-run work on the host: what a process does once, and steady steps never."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, mask_of
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import coverage, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match_some
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.trace.events import Events, MemoryEvents
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.api_calls import ALLOCATOR_CALL, DEVICE_FREE, INITIALIZING_CALL, MODULE_LOAD_CALL
from tb_gpudiag.vocabulary.operators import WAITS_OR_COPIES
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category

# Once a context exists, device queries and stream creation take 1-100 us in public traces. The call that
# creates the context or loads a library takes 10 ms to 30 s.
ONE_TIME_NS = 1_000_000

# A process's first cudaMalloc or cudaFree sets up the driver's memory (cudaFree(0) is a common way to create
# the context), and libraries call them as they start. Later ones take up to a few milliseconds.
FIRST_ALLOCATOR_CALL_NS = 10_000_000

# A cold pass that still loads GPU code keeps using new kernels. In a job that repeats its work, up to 3% of
# the later launches are first uses (simulated), even if each repetition brings a new kernel.
COLD_FIRST_USES = levels.NOTICEABLE

# Work goes on if it is in this share of the later half of the steps, and in more than one of them; without
# step marks, if the second half of the launches has at least half of its fair share of it.
RECURRING_SHARE = levels.LARGE

# An operator that spends this much of its time in first-run calls is first-run work as a whole: between the
# calls it reads the library from disk.
MOSTLY = levels.HALF

# So is the first call of an operator with a first-run call in it, if it takes this many times as long as the
# later ones usually do: addmm creates the handle of its library in 117 ms, and then takes 50 us.
TIMES_LATER = 10
FEWEST_LATER = 2


def first_run(host: Host, work: Work, steps: Steps, memory: MemoryEvents) -> Bool:
    """Find the host events that are first-run work or happen inside it, shape (n,).

    What goes on in later steps is part of each of them: dynamic shapes load new kernels again and again.
    Without steps, what goes on in the second half of the launches."""
    events = host.events
    calls = events.where(*CALL_CATEGORIES)
    long = calls[events.duration_ns[calls] >= ONE_TIME_NS]
    first = _first_of_their_name(host)
    found = mask_of(_opener(host, work, first, several_steps=len(steps) > 1), len(events))
    if not len(long):
        return host.tree.under(found) if found.any() else found
    initializing = long[match_some(events, INITIALIZING_CALL, long)]
    # Module loads, and the first launch of a kernel.
    loads = long[match_some(events, MODULE_LOAD_CALL, long) | work.loads_module[long]]
    for kind in (initializing, loads):
        if not _recurs(kind, work, steps):
            found[kind] = True
    allocating = long[match_some(events, ALLOCATOR_CALL, long)]
    if not _recurs(allocating, work, steps):
        inside = host.tree.nearest_of(first)[allocating] != NONE
        cold = events.start_ns[allocating] < events.start_ns[found].max(initial=0)
        cold &= events.duration_ns[allocating] >= FIRST_ALLOCATOR_CALL_NS
        once = np.union1d(allocating[inside | cold], _first_allocator_calls(events, calls))
        found[once[~_returns_memory(events, memory, once)]] = True
    if not found.any():
        return found
    found[_operators_around(events, np.flatnonzero(found))] = True
    found |= first & host.tree.any_below(found)
    return host.tree.under(found)


def _opener(host: Host, work: Work, first: Bool, *, several_steps: bool) -> list[int]:
    """The operator that launched first, if it took far longer than later ones: the tracer sets itself up
    during a recording's first launch. A copy may wait for the GPU instead. first: see _first_of_their_name.

    Without several steps, an operator without later ones may be it, too, if most of it passed before the
    launch."""
    if not len(work.by_launch):
        return []
    events, one = host.events, int(work.by_launch[0])
    around = [
        i
        for i in host.tree.ancestors(int(work.launch[one]))
        if events.category[i] == Category.CPU_OP and events.duration_ns[i] >= ONE_TIME_NS
    ]
    known = [i for i in around if first[i]]
    if match_some(events, WAITS_OR_COPIES, np.array(around, np.int64)).any():
        return []
    if known or several_steps or not around:
        return known
    inner = max(around, key=lambda i: int(host.tree.depth[i]))
    took_ns, same = int(events.duration_ns[inner]), events.name == events.name[inner]
    later_ns = events.duration_ns[same & (events.start_ns >= events.end_ns[inner])].max(initial=0)
    until_launch_ns = int(work.launch_start_ns[one] - events.start_ns[inner])
    return [inner] if until_launch_ns >= MOSTLY * took_ns and later_ns < MOSTLY * took_ns else []


def _recurs(calls: Int64, work: Work, steps: Steps) -> bool:
    events = work.events
    spent_ns, start = events.duration_ns[calls], events.start_ns[calls]
    if len(steps) > 1:
        later = np.sort(steps.start_ns)[len(steps) // 2 :]
        step = np.searchsorted(later, start, side="right") - 1
        in_step_ns = np.bincount(step[step >= 0], weights=spent_ns[step >= 0], minlength=len(later))
        having = int((in_step_ns >= ONE_TIME_NS).sum())
        return having >= max(min(2, len(later)), RECURRING_SHARE * len(later))
    launched = work.by_launch
    second_half = launched[len(launched) // 2 :]
    if not len(second_half) or work.first_use[second_half].mean() >= COLD_FIRST_USES:
        return False
    late = start >= work.launch_start_ns[second_half[0]]
    return int(spent_ns[late].sum()) >= max(ONE_TIME_NS, RECURRING_SHARE * int(spent_ns.sum()))


def _first_of_their_name(host: Host) -> Bool:
    """Mask of the operators that are the first of their name and take far longer than the later ones, shape
    (n,)."""
    events = host.events
    operators = np.flatnonzero((events.category == Category.CPU_OP) & (host.tree.depth >= 0))
    ever_long = mask_of(
        events.name[operators[events.duration_ns[operators] >= ONE_TIME_NS]], len(events.names)
    )
    operators = operators[ever_long[events.name[operators]]]
    operators = operators[np.lexsort((events.start_ns[operators], events.name[operators]))]
    _, at, count = np.unique(events.name[operators], return_index=True, return_counts=True)
    found = np.zeros(len(events), np.bool_)
    long = (events.duration_ns[operators[at]] >= ONE_TIME_NS) & (count > FEWEST_LATER)
    for low, many in zip(at[long].tolist(), count[long].tolist(), strict=True):
        first, later = operators[low], operators[low + 1 : low + many]
        later = later[events.start_ns[later] >= events.end_ns[first]]
        if len(later) < FEWEST_LATER:
            continue
        usual_ns = float(np.median(events.duration_ns[later]))
        found[first] = events.duration_ns[first] >= TIMES_LATER * usual_ns
    return found


def _first_allocator_calls(events: Events, calls: Int64) -> Int64:
    """The first call of each allocator function, if it took far longer than such calls usually do."""
    allocating = calls[match_some(events, ALLOCATOR_CALL, calls)]
    allocating = allocating[np.argsort(events.start_ns[allocating], kind="stable")]
    first = allocating[np.unique(events.name[allocating], return_index=True)[1]]
    return first[events.duration_ns[first] >= FIRST_ALLOCATOR_CALL_NS]


def _returns_memory(events: Events, memory: MemoryEvents, calls: Int64) -> Bool:
    """Mask of the calls that free device memory after which less is reserved, shape of `calls`: the allocator
    made room, and will again."""
    found: Bool = match_some(events, DEVICE_FREE, calls)
    known = np.flatnonzero((memory.reserved != NONE) & (memory.device != NONE))
    if not found.any() or not len(known):
        return found & False
    time_ns, reserved = memory.time_ns[known], memory.reserved[known]
    before = np.searchsorted(time_ns, events.start_ns[calls]) - 1
    after = np.searchsorted(time_ns, events.end_ns[calls])
    inside = (before >= 0) & (after < len(known))
    fell = reserved[np.minimum(after, len(known) - 1)] < reserved[np.maximum(before, 0)]
    return found & inside & fell


def _operators_around(events: Events, calls: Int64) -> Int64:
    """Operators that spend most of their time in these calls."""
    operators = events.where(Category.CPU_OP)
    spent = np.zeros(len(operators))
    for thread in np.unique(events.thread[calls]):
        own, there = calls[events.thread[calls] == thread], events.thread[operators] == thread
        around = operators[there]
        spent[there] = coverage(
            union(events.start_ns[own], events.end_ns[own]), events.start_ns[around], events.end_ns[around]
        )
    took_ns = events.duration_ns[operators]
    return operators[(took_ns >= ONE_TIME_NS) & (spent >= MOSTLY * took_ns)]
