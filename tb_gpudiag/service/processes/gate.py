"""The gate through which commands and programs read what others wrote: within limits on time and memory.

TensorBoard has analyses in processes with the same limits: see analyses/analysis_queue.py.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any, Final

from tb_gpudiag.errors import ProcessFailed
from tb_gpudiag.service.processes.child import Child, ChildEnded, ChildMessage, MessageKind
from tb_gpudiag.service.processes.memory_limit import AnalysisLimit, of_this_process, out_of_time
from tb_gpudiag.service.settings import command_memory_limit_bytes, settings_from

Progress = Callable[[float, str], None]

# Who reads one file after another starts one process.
_IDLE_S: Final = 60.0

kept = threading.local()
"""Processes of this thread, by module: with the environment that each was started in."""


def ask_apart(
    module: str, request: dict[str, Any], progress: Progress = lambda share, stage: None
) -> ChildMessage:
    """Have a process of its own answer a request: see serving.py. It ends whatever it is doing at a limit.

    request: its `where` is what it is about, for people. The process gets the limits as well, and the working
        directory, which is not its own.

    Raises LimitReached, ProcessFailed, and what the process answers: a GpudiagError.
    """
    limit_s, where, answer = settings_from().time_limit_s, request["where"], ChildMessage()
    memory_limit_bytes = of_this_process(command_memory_limit_bytes())
    limits = {"memory_limit_bytes": memory_limit_bytes, "time_limit_s": limit_s, "below": os.getcwd()}
    try:
        environment, child = vars(kept).get(module, ({}, None))
        if child is None or environment != os.environ:
            if child is not None:
                child.stop()
            child = Child(module, nice=0, idle_s=_IDLE_S)
            vars(kept)[module] = {**os.environ}, child
        for answer in child.messages(request | limits, limit_s):
            if answer.kind is MessageKind.PROGRESS:
                progress(answer.fields["share"], answer.fields["stage"])
    except TimeoutError:
        raise out_of_time(limit_s, where) from None
    except ChildEnded as ended:
        if ended.code == -signal.SIGALRM:
            raise out_of_time(limit_s, where) from None
        raise ProcessFailed(
            f"the process that read it ended ({ended})",
            where=where,
            remedy="check whether this machine is out of memory",
        ) from ended
    return answer


def limit_here() -> AnalysisLimit:
    """Return the limit of a command that reads files in its own process: a second one takes half a second of
    imports, as long as a small diagnosis."""
    return AnalysisLimit(command_memory_limit_bytes(), settings_from().time_limit_s)


def _forget() -> None:
    for _, child in vars(kept).values():
        child.forget()
    vars(kept).clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget)
