"""What the main thread waits for in one call, and what the thread that ends the wait does meanwhile."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Evidence, Place
from tb_gpudiag.rules.shared.host_task_fixes import HOST_TASK_FIXES
from tb_gpudiag.rules.shared.lost_time import Lost, lost_time, places
from tb_gpudiag.vocabulary.frames import Frame
from tb_gpudiag.vocabulary.task_names import HostTask
from tb_gpudiag.wording.format import share

# More places of the other thread are on the timeline.
_MOST_PLACES = 2


def waits_sentence(facts: Facts, limiter: str) -> str:
    """Say what the main thread waits for most if waiting limits the job, or data that it waits for; "" if it
    waits for nothing."""
    lost = lost_time(facts)
    waiting = lost.of(*_WAITED_FOR.get(limiter, ())) & np.isin(lost.task, _WAITS)
    waiting[waiting] = ~facts.host.loader[lost.event[waiting]]  # torch's own has parts, and rules about them
    for task in facts.host_work.tasks.time_ns(lost.event[waiting], lost.length_ns[waiting]):
        own = waiting & (lost.task == task)
        at = meanwhile(facts, lost, own)
        where = "".join(f", which was mostly in {_text(place)}" for place in at[:1])
        took = share(lost.total_ns(own), lost.window_ns)
        return f"For {took} of the time the main thread was {HOST_TASK_FIXES[task].activity}{where}."
    return ""


def meanwhile_evidence(facts: Facts, lost: Lost, chosen: Bool) -> list[Evidence]:
    """What the thread that ends these waits does in them, where it was recorded."""
    return [
        Evidence.of_cost(
            f"Meanwhile, in the other thread: {_text(place)}", place.time_ns, lost.total_ns(chosen)
        )
        for place in meanwhile(facts, lost, chosen)
    ]


def meanwhile(facts: Facts, lost: Lost, chosen: Bool) -> list[Place]:
    """Where the thread that ends these waits is while they last, longest first; none where it was not
    recorded."""
    host, tasks = facts.host, facts.host_work.tasks
    calls = np.unique(tasks.call[lost.event[chosen]])
    calls = calls[host.task[calls] == HostTask.THREAD]
    thread = host.waker_of(calls)
    spans = facts.host_time.spans_of(lost.stretches(chosen), thread)
    works = spans.event != NONE
    works[works] = ~np.isin(host.task[spans.event[works]], np.array((HostTask.THREAD, HostTask.LOCK)))
    length_ns = spans.end_ns - spans.start_ns
    return places(host, spans.event[works], length_ns[works])[:_MOST_PLACES]


def _text(place: Place) -> str:
    return str(Frame(place.file, place.line, place.function, place.line_kind)) or place.operator


_WAITS = np.array([task for task, known in HOST_TASK_FIXES.items() if known.waits])

_WAITED_FOR = {"waiting": (Cause.WAITING,), "input": (Cause.INPUT,)}
