"""Host tasks by their names: what each host span is for, and which thread ends the waits of another one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64
from tb_gpudiag.facts.core.intervals import union
from tb_gpudiag.facts.core.threads import Activity, HostTree
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.frames import own_function
from tb_gpudiag.vocabulary.recorded import HOST_CATEGORIES, Category
from tb_gpudiag.vocabulary.torch_frames import WAITS, HostTask, of_users

# A job has a few threads that matter. Each is compared with all waits.
_MOST_THREADS = 32

_OF_WEIGHTS = np.array((HostTask.SAVING, HostTask.AVERAGING))
"""A function of the user's own that does these computes nothing; it averages in collectives."""

_AT_REST = np.array((HostTask.THREAD, HostTask.LOCK))
"""What a thread is in while others work."""


def named_tasks(
    events: Events, tree: HostTree, of_libraries: Int32, trained: Bool, computes: Bool, communicates: Bool
) -> tuple[Int32, Bool]:
    """Return the task that each host span's own name says, or NONE, and the mask of those whose name is the
    user's own, shape (n,) each.

    of_libraries: the task that each name says by the table of libraries, or NONE. trained, computes,
    communicates: masks of the spans of backward passes, of modules and of collectives. An evaluation is one
    beside a training: where nothing is trained, or inside of it something is, it is the job itself."""
    of_name, own_name = of_libraries.copy(), np.zeros(len(of_libraries), np.bool_)
    used = np.unique(events.name[events.category == Category.PYTHON_FUNCTION]).tolist()
    functions = [own_function(events.names[number]) for number in used]
    for kind, names in of_users().items():
        own = [number for number, function in zip(used, functions, strict=True) if names.fullmatch(function)]
        of_name[own], own_name[own] = kind, True
    spans = events.among(*HOST_CATEGORIES) & (tree.depth >= 0)
    task: Int32 = np.where(spans, of_name[events.name], NONE)
    works = tree.any_below(events.category == Category.CPU_OP)
    task[np.isin(task, np.array(WAITS)) & works] = NONE  # it does something: a process that others wait for
    lacks = np.where(task == HostTask.AVERAGING, ~tree.any_below(communicates), tree.any_below(computes))
    task[own_name[events.name] & np.isin(task, _OF_WEIGHTS) & lacks] = NONE
    evaluates = task == HostTask.EVALUATING
    task[evaluates & (tree.any_below(trained) | (not trained.any()))] = NONE
    return task, own_name[events.name] & spans


def waker_of(
    waits: Int64, events: Events, activities: Mapping[int, Activity], task: Int64, waking: Bool
) -> int:
    """Return the thread that ends most of these waits (event indices) of one thread: it puts something in a
    queue, or sets a result, while they last. If none does, the one that works most meanwhile; NONE if none
    works.

    task: of each event, its outermost one or NONE. waking: mask of what ends the waits of others."""
    start, end = events.start_ns[waits], events.end_ns[waits]
    during, wakes_at = union(start, end), np.flatnonzero(waking)

    def score(other: int) -> tuple[int, int]:
        """How long the waits are that it ends, and how long it works meanwhile."""
        wakes = np.sort(events.start_ns[wakes_at[events.thread[wakes_at] == other]])
        woken = np.searchsorted(wakes, end, side="right") > np.searchsorted(wakes, start)
        activity = activities[other]
        works = activity.event != NONE
        works[works] = ~np.isin(task[activity.event[works]], _AT_REST)
        return int((end - start)[woken].sum()), int(activity.during(during)[works].sum())

    others = activities.keys() - set(events.thread[waits].tolist())
    busiest = sorted(others, key=lambda other: (-len(activities[other].event), other))[:_MOST_THREADS]
    return -max([(0, 0, -NONE), *((*score(other), -other) for other in busiest)])[2]
