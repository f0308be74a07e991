"""How commands read a database: in a process of its own.

SQLite runs for as long as a database makes it run, and only its process can be ended. A time limit ends other
analyses of a command at the next line of Python.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from tb_gpudiag.service.analyses.diagnoses import AnalyzedTrace, ResultKind
from tb_gpudiag.service.analyses.task import Task
from tb_gpudiag.service.caches.cache_entry import unpack
from tb_gpudiag.service.processes.gate import ask_apart
from tb_gpudiag.service.settings import command_memory_limit_bytes
from tb_gpudiag.trace.files.find import TraceFile, may_be_database

if TYPE_CHECKING:
    from tb_gpudiag.report.diagnosis import Progress

MODULE: Final = "tb_gpudiag.service.analyses.worker"

R = TypeVar("R", bound=AnalyzedTrace)


def databases_apart(kind: ResultKind[R]) -> ResultKind[R]:
    """Return a kind of result, for which databases are analyzed in a process of their own."""
    return replace(kind, of_trace=partial(_analyze, kind))


def _analyze(kind: ResultKind[R], file: TraceFile, progress: Progress) -> R:
    if not may_be_database(file):
        return kind.of_trace(file, progress)
    with tempfile.TemporaryDirectory(prefix="gpudiag-") as folder:
        draft = Path(folder, "result")
        # The process runs in another directory.
        there = replace(file, path=os.path.abspath(file.path) if os.path.exists(file.path) else file.path)
        task = Task(there, kind.name, drafts=(str(draft),), memory_limit_bytes=command_memory_limit_bytes())
        ask_apart(MODULE, task.request() | {"where": file.path}, progress)
        with open(draft, "rb") as content:
            return kind.of_entry(unpack(content, draft), file, "")
