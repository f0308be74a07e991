"""What the host does next to the model, and what it waits for, by the names of frames and ranges.

`task_names.tsv` has a row for each form of a name: the task, the library, and an expression for the name.
There, `queue.py: get` stands for `queue.py(154): get`, and ` object>` for an object at any address. A row
without a library has the name of a function of the user's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Final

from tb_gpudiag.vocabulary.patterns import PACKAGE, PATH, any_of


class HostTask(IntEnum):
    """Kinds of host tasks."""

    GARBAGE = 0  # gc.collect(), and each collection if the recorder was told to record them
    LOGGING = 1  # log lines, progress bars, metrics, print
    SAVING = 2  # a checkpoint
    TOKENIZING = 3
    PREPARING = 4  # images, sound and video: decoded, resized, normalized
    SLEEPING = 5  # time.sleep()
    MAKING = 6  # random or large tensors, made on the host of a job with a GPU
    PLANNING = 7  # cuDNN plans attention for a shape that it has not seen
    READING = 8  # tensors from files
    EVALUATING = 9  # an evaluation beside a training
    THREAD = 10  # wait for another thread, as at a queue
    PROCESS = 11  # wait for a child process
    SOCKET = 12
    FILE = 13
    LOCK = 14
    LOADING = 15  # fetch a batch
    PROFILING = 16
    WAKING = 17  # end the wait of another thread


WAITS: Final = (
    HostTask.SLEEPING,
    HostTask.THREAD,
    HostTask.PROCESS,
    HostTask.SOCKET,
    HostTask.FILE,
    HostTask.LOCK,
)
"""In these, a thread sits in one call and does nothing."""

INPUT: Final = (HostTask.LOADING, HostTask.TOKENIZING, HostTask.PREPARING, HostTask.READING)
"""In these, a thread makes batches."""

_Row = tuple[HostTask, str, str]


@lru_cache(1)
def _rows() -> list[_Row]:
    text = Path(__file__).with_name("task_names.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    return [(HostTask[task.upper()], library, name) for task, library, name in rows]


def _pattern(name: str) -> str:
    """Return the expression of a name in the table."""
    at_line = name.replace(".py: ", r"\.py\(\d+\): ")
    if at_line != name:
        return (PATH if name.startswith("torch/") else PACKAGE) + at_line  # torch runs from its sources, too
    return name.replace(" object>", r" object at .*>")


def _patterns(*, users: bool) -> Iterator[tuple[HostTask, re.Pattern[str]]]:
    for one in HostTask:
        names = [name for task, library, name in _rows() if task is one and users is not bool(library)]
        if names:
            yield one, any_of(*names if users else map(_pattern, names), flags=re.S)


TASK_NAMES: Final = dict(_patterns(users=False))
"""Task -> the whole names of what does it."""


@lru_cache(1)
def of_users() -> dict[HostTask, re.Pattern[str]]:
    """Task -> the names of functions of the user's own that do it."""
    return dict(_patterns(users=True))


LOADER: Final = TASK_NAMES[HostTask.LOADING]
PROFILER_FRAME: Final = TASK_NAMES[HostTask.PROFILING]
WAKES: Final = TASK_NAMES[HostTask.WAKING]
EVALUATES: Final = of_users()[HostTask.EVALUATING]
