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
from tb_gpudiag.rules.rule import fix_code
from tb_gpudiag.rules.shared.lost_time import Lost, lost_time, places
from tb_gpudiag.vocabulary.frames import Frame
from tb_gpudiag.vocabulary.torch_frames import HostTask
from tb_gpudiag.wording.format import count, share, time_ns

_CODE = fix_code("tb_gpudiag.rules.idle.host_bound")


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


HOST_TASK_FIXES = {
    HostTask.GARBAGE: HostTaskFix(
        "garbage collection",
        "collecting garbage",
        Fix(
            "Collect garbage at fixed intervals instead of in every step.",
            _CODE["garbage"],
            "https://docs.python.org/3/library/gc.html",
        ),
    ),
    HostTask.LOGGING: HostTaskFix(
        "logging",
        "writing logs",
        Fix(
            "Log every N steps, and write from another thread.",
            _CODE["logging"],
            "https://docs.python.org/3/library/logging.handlers.html#queuehandler",
        ),
    ),
    HostTask.SAVING: HostTaskFix(
        "saving files",
        "saving a file",
        Fix(
            "Save less often, and from another thread.",
            _CODE["saving"],
            "https://docs.pytorch.org/docs/stable/distributed.checkpoint.html",
        ),
    ),
    HostTask.SLEEPING: HostTaskFix(
        "sleeping",
        "sleeping",
        Fix(
            "Remove the sleep from the step. To wait for something, wait for it itself, in another thread.",
            _CODE["sleeping"],
            "https://docs.python.org/3/library/threading.html#event-objects",
        ),
        waits=True,
    ),
    HostTask.EVALUATING: HostTaskFix(
        "evaluation",
        "evaluating the model",
        Fix("Evaluate less often, or on less data.", ""),
    ),
    HostTask.THREAD: HostTaskFix(
        "waiting for another thread",
        "waiting for another thread",
        Fix(
            "Let the other thread begin earlier, so that its result is there when the step needs it, or make "
            "what it does faster.",
            _CODE["wait_for_thread"],
            "https://docs.python.org/3/library/concurrent.futures.html",
        ),
        waits=True,
    ),
    HostTask.PROCESS: HostTaskFix(
        "waiting for a child process",
        "waiting for a child process",
        Fix(
            "Start the process before the step that needs its result, keep it, and ask for the next result "
            "before this one is used.",
            _CODE["wait_for_process"],
            "https://docs.python.org/3/library/concurrent.futures.html#processpoolexecutor",
        ),
        waits=True,
    ),
    HostTask.SOCKET: HostTaskFix(
        "waiting for a socket",
        "waiting for a socket",
        Fix(
            "Ask for the next data while this step computes, or keep a copy of it on this machine.",
            _CODE["wait_for_socket"],
            "https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading",
        ),
        waits=True,
    ),
    HostTask.FILE: HostTaskFix(
        "reading and writing files",
        "reading or writing a file",
        Fix(
            "Read the next file while this step computes, from a faster disk or from memory; write from "
            "another thread.",
            _CODE["wait_for_file"],
            "https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading",
        ),
        waits=True,
    ),
    HostTask.LOCK: HostTaskFix(
        "waiting for a lock",
        "waiting for a lock",
        Fix(
            "Hold the lock for a shorter time in the other thread or process, or give each its own data.",
            _CODE["wait_for_lock"],
            "https://docs.python.org/3/library/threading.html#lock-objects",
        ),
        waits=True,
    ),
    HostTask.MAKING: HostTaskFix(
        "making tensors on the CPU",
        "making tensors",
        Fix(
            "Make them on the GPU.",
            _CODE["random_on_gpu"],
            "https://docs.pytorch.org/docs/stable/generated/torch.randn.html",
        ),
    ),
    HostTask.PLANNING: HostTaskFix(
        "planning cuDNN's attention",
        "planning attention for a shape that cuDNN has not seen",
        Fix(
            "Use FlashAttention, which needs no plan, or pad to a few lengths.",
            _CODE["plan_attention"],
            "https://docs.pytorch.org/docs/stable/backends.html#torch.backends.cuda.enable_cudnn_sdp",
        ),
    ),
    HostTask.READING: HostTaskFix(
        "reading tensors from files",
        "reading tensors from files",
        Fix(
            "Read them before the steps, once, and keep weights on the GPU.",
            _CODE["load_once"],
            "https://huggingface.co/docs/accelerate/usage_guides/big_modeling",
        ),
    ),
    HostTask.TOKENIZING: HostTaskFix(
        "tokenizing text",
        "tokenizing text",
        Fix(
            "Tokenize once before training, or whole batches in the loader's workers.",
            f"{_CODE['tokenize_once']}\n\n{_CODE['tokenize_batches']}",
            "https://huggingface.co/docs/transformers/main_classes/tokenizer",
        ),
    ),
    HostTask.PREPARING: HostTaskFix(
        "preparing images, audio or video",
        "preparing images, audio or video",
        Fix(
            "Prepare the next batch in the loader's workers, on the GPU, or once before training.",
            f"{_CODE['prepare_in_workers']}\n\n{_CODE['prepare_on_gpu']}",
            "https://docs.pytorch.org/vision/stable/transforms.html",
        ),
    ),
}

_IMAGES_URL = "https://docs.pytorch.org/vision/stable/transforms.html"
_PIPELINE_URL = "https://huggingface.co/docs/transformers/pipeline_tutorial"

PIPELINE_FIX = Fix(
    "Let the pipeline's worker processes prepare items: pass num_workers= and batch_size=.",
    _CODE["pipeline_workers"],
    _PIPELINE_URL,
)

_WITHOUT_LOADER = {
    HostTask.TOKENIZING: Fix(
        "Tokenize whole batches with a fast tokenizer, while the GPU works on the previous batch.",
        _CODE["tokenize_batches"],
        "https://huggingface.co/docs/transformers/main_classes/tokenizer",
    ),
    HostTask.PREPARING: Fix(
        "Prepare inputs on the GPU, or in another process while the GPU works on the previous ones.",
        f"{_CODE['prepare_on_gpu']}\n\n# Prepare an input that is used several times once.",
        _IMAGES_URL,
    ),
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
