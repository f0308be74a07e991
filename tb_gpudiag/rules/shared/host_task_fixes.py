"""Names and fixes of host tasks, such as logging and garbage collection, for the rules that find them; what
the main thread waits for in one call, and what the thread that ends the wait does meanwhile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Bool
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.interruptions import Interruptions
from tb_gpudiag.facts.waiting.job_kind import JobKind
from tb_gpudiag.rules.answer import Evidence, Fix, Place
from tb_gpudiag.rules.rule import page_fixes
from tb_gpudiag.rules.shared.lost_time import Lost, lost_time, places
from tb_gpudiag.vocabulary.frames import Frame
from tb_gpudiag.vocabulary.torch_frames import HostTask
from tb_gpudiag.wording.format import count, time_ns

FIXES = page_fixes("tb_gpudiag.rules.shared.host_tasks")


class HostTaskFix(NamedTuple):
    """What to call a host task, and how to fix it."""

    noun: str  # completes "... keeps the GPU idle"
    activity: str  # completes "the host was busy ..."
    fix: Fix
    waits: bool = False  # the main thread sits in one call

    @property
    def label(self) -> str:
        """The noun with a capital letter."""
        return self.noun[0].upper() + self.noun[1:]


def _wait(what: str, fix: str) -> HostTaskFix:
    waiting = f"waiting for {what}"
    return HostTaskFix(waiting, waiting, FIXES[fix], waits=True)


HOST_TASK_FIXES = {
    HostTask.GARBAGE: HostTaskFix("garbage collection", "collecting garbage", FIXES["garbage"]),
    HostTask.LOGGING: HostTaskFix("logging", "writing logs", FIXES["logging"]),
    HostTask.SAVING: HostTaskFix("saving files", "saving a file", FIXES["saving"]),
    HostTask.SLEEPING: HostTaskFix("sleeping", "sleeping", FIXES["sleeping"], waits=True),
    HostTask.EVALUATING: HostTaskFix(
        "evaluation", "evaluating the model", Fix("Evaluate less often, or on less data.", "")
    ),
    HostTask.SIMULATING: HostTaskFix(
        "stepping the environment", "stepping an environment or a simulator", FIXES["simulate"]
    ),
    HostTask.THREAD: _wait("another thread", "wait_for_thread"),
    HostTask.PROCESS: _wait("a child process", "wait_for_process"),
    HostTask.PROGRAM: _wait("a child process", "wait_for_program"),
    HostTask.FILE_LOCK: _wait("a lock on a file", "wait_for_lock"),
    HostTask.SOCKET: _wait("a socket", "wait_for_socket"),
    HostTask.FILE: HostTaskFix(
        "reading and writing files", "reading or writing a file", FIXES["wait_for_file"], waits=True
    ),
    HostTask.LOCK: _wait("a lock", "wait_for_lock"),
    HostTask.MAKING: HostTaskFix("making tensors on the CPU", "making tensors", FIXES["random_on_gpu"]),
    HostTask.COMPUTING: HostTaskFix("computing on the CPU", "computing", FIXES["compute_on_gpu"]),
    HostTask.CONVERTING: HostTaskFix("making tensors of lists", "making tensors of lists", FIXES["convert"]),
    HostTask.PLANNING: HostTaskFix(
        "planning cuDNN's attention",
        "planning attention for a shape that cuDNN has not seen",
        FIXES["plan_attention"],
    ),
    HostTask.READING: HostTaskFix(
        "reading tensors from files", "reading tensors from files", FIXES["load_once"]
    ),
    HostTask.TOKENIZING: HostTaskFix("tokenizing text", "tokenizing text", FIXES["tokenize_once"]),
    HostTask.PREPARING: HostTaskFix(
        "preparing images, audio or video", "preparing images, audio or video", FIXES["prepare_in_workers"]
    ),
}

PIPELINE_FIX = FIXES["pipeline_workers"]

_WITHOUT_LOADER = {
    HostTask.TOKENIZING: FIXES["tokenize_batches"],
    HostTask.PREPARING: FIXES["prepare_on_gpu"],
}


def host_task_fix(task: HostTask, job: JobKind) -> Fix:
    """Return the fix of a host task that fits what feeds the job: a pipeline, a DataLoader or neither."""
    if task not in _WITHOUT_LOADER:
        return HOST_TASK_FIXES[task].fix
    if job.pipeline:
        return PIPELINE_FIX
    in_advance = task is HostTask.TOKENIZING and job.training is not False  # of a data set
    return HOST_TASK_FIXES[task].fix if job.loader or in_advance else _WITHOUT_LOADER[task]


def oversubscribed_sentence(found: Interruptions) -> str:
    """Say that the CPU has too few cores for the job's threads; "" if nothing shows it."""
    if not found.several:
        return ""
    return (
        f"The CPU may be oversubscribed: {count(found.stalls, 'operator')} that usually take "
        f"{time_ns(found.usual_ns)} took {time_ns(found.stall_ns)}, as if another thread had the core."
    )


_FOR_THREADS = np.array((HostTask.THREAD, HostTask.LOCK, NONE))
"""What another thread of this process ends."""

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
        where = "".join(f", and the other thread was mostly in {place_text(place)}" for place in at[:1])
        return f"The main thread was {HOST_TASK_FIXES[task].activity}{where}."
    return ""


def meanwhile_evidence(facts: Facts, lost: Lost, chosen: Bool) -> list[Evidence]:
    """What the thread that ends these waits does in them, where it was recorded."""
    return [
        Evidence.of_cost(
            f"Meanwhile, in the other thread: {place_text(place)}", place.time_ns, lost.total_ns(chosen)
        )
        for place in meanwhile(facts, lost, chosen)
    ]


def meanwhile(facts: Facts, lost: Lost, chosen: Bool) -> list[Place]:
    """Where the thread that ends these waits is while they last, longest first; none where it was not
    recorded."""
    host, tasks = facts.host, facts.host_work.tasks
    calls = np.unique(tasks.calls(lost.event[chosen]))
    calls = calls[np.isin(host.task[calls], _FOR_THREADS)]
    thread = host.waker_of(calls)
    spans = facts.host_time.spans_of(lost.stretches(chosen), thread)
    works = spans.event != NONE
    works[works] = ~np.isin(host.task[spans.event[works]], np.array((HostTask.THREAD, HostTask.LOCK)))
    length_ns = spans.end_ns - spans.start_ns
    return places(host, spans.event[works], length_ns[works])[:_MOST_PLACES]


def place_text(place: Place) -> str:
    return str(Frame(place.file, place.line, place.function, place.line_kind)) or place.operator


_WAITS = np.array([task for task, known in HOST_TASK_FIXES.items() if known.waits])

_WAITED_FOR = {"waiting": (Cause.WAITING,), "input": (Cause.INPUT,)}
