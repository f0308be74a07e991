"""Runs an analysis in a process of its own: see analysis_queue.py and processes/."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.diagnosis import Progress
from tb_gpudiag.report.source_lines import add_source_lines
from tb_gpudiag.service.analyses.diagnoses import (
    DIAGNOSIS,
    EARLY_SHARE,
    EARLY_STAGE,
    KINDS,
    REPORT,
    Diagnosis,
    early_state,
    known,
    obtain,
    share,
    without_page,
    zipped,
)
from tb_gpudiag.service.analyses.task import EntryContent, Task, save
from tb_gpudiag.service.caches.shared_cache import SharedCache
from tb_gpudiag.service.processes.child import ChildMessage
from tb_gpudiag.service.processes.serving import Reply
from tb_gpudiag.service.settings import Settings


def answer(request: dict[str, Any], reply: Reply) -> ChildMessage:
    """Do a Task, and answer which draft has its result."""
    task = Task.of(request)
    reply.bound_memory(task.memory_limit_bytes)
    return ChildMessage({"draft": str(save(analyze(task, reply.progress, reply.piece), task.drafts))})


def analyze(
    task: Task, progress: Progress, show: Callable[[bytes], None] = lambda content: None
) -> EntryContent:
    """Do the task.

    show: gets the report of a diagnosis as soon as it is known, as a gzipped ReportState: to prepare the
        timeline of a large trace takes longer than its diagnosis.

    Raises:
        TraceError: the file cannot be read.
        ProcessFailed: a digest is gone.
    """
    cache, team = (Path(path) if path else None for path in (task.cache, task.shared))
    store = SharedCache.of_user(Settings(cache_directory=cache, shared_directory=team))
    is_own = store is not None and store.is_own
    if task.kind == DIAGNOSIS.name:
        # A command may have read the trace. A team's store has the timeline as well.
        early = known(task.file, REPORT, store) if is_own else None
        if early is not None:
            show(zipped(early_state(_with_lines(early.report, task))))
        found = obtain(task.file, DIAGNOSIS, store, progress, share_later=True)
        shown = replace(found, make_digest=lambda: found.digest, report=_with_lines(found.report, task))
        show(zipped(early_state(shown.report)))
        progress(EARLY_SHARE, EARLY_STAGE)
        if store is not None and is_own:
            share(found, task.file, store)
        return shown.entry
    if task.kind in KINDS:
        # TensorBoard shares it with a team, so that the page does not wait for the storage.
        result = obtain(task.file, KINDS[task.kind], store, progress, share_later=not is_own)
        if isinstance(result, Diagnosis):
            result = replace(without_page(result), report=_with_lines(result.report, task))
        return result.entry
    from tb_gpudiag.service.analyses import joint_tasks  # a diagnosis of one trace needs nothing of jobs/

    return joint_tasks.do(task, progress)


def _with_lines(report: pb.Report, task: Task) -> pb.Report:
    """Return the report with the user's lines of code, which stay with who has them: a shared result, and
    one that other settings may find, have none."""
    if not task.source_root or task.shared:
        return report
    shown = pb.Report()
    shown.CopyFrom(report)
    add_source_lines(shown, task.source_root)
    return shown
