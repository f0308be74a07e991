"""Runs an analysis in a process of its own: see analysis_queue.py and processes/."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.diagnosis import Progress
from tb_gpudiag.report.source_lines import add_source_lines
from tb_gpudiag.service.analyses.diagnoses import DIAGNOSIS, ONLY_DIGEST, zipped
from tb_gpudiag.service.analyses.obtain import obtain, share
from tb_gpudiag.service.analyses.task import EntryContent, Task, save
from tb_gpudiag.service.caches.shared_cache import SharedCache
from tb_gpudiag.service.processes.child import ChildMessage
from tb_gpudiag.service.processes.serving import Reply
from tb_gpudiag.service.settings import Settings

EARLY_SHARE: Final = 0.9
EARLY_STAGE: Final = "preparing the timeline"


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
    if task.kind == "diagnose":
        found = obtain(task.file, DIAGNOSIS, store, progress, share_later=True)
        # Lines of code stay with who has them: a shared result has none.
        if task.source_root and not task.shared:
            add_source_lines(found.report, task.source_root)
        show(zipped(early_state(found.report)))
        progress(EARLY_SHARE, EARLY_STAGE)
        if store is not None and store.is_own:
            share(found, task.file, store)
        return found.entry
    if task.kind == "digest":
        # TensorBoard shares it with a team, so that the page does not wait for the storage.
        is_own = store is not None and store.is_own
        return obtain(task.file, ONLY_DIGEST, store, progress, share_later=not is_own).entry
    from tb_gpudiag.service.analyses import joint_tasks  # a diagnosis of one trace needs nothing of jobs/

    return joint_tasks.do(task, progress)


def early_state(report: pb.Report) -> pb.ReportState:
    """Return what the page gets while only the report is known."""
    return pb.ReportState(state="running", progress=EARLY_SHARE, stage=EARLY_STAGE, report=report)
