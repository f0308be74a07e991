"""What an analysis process does with digests of several recordings, by the kind of its task."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tb_gpudiag.digest.building.record_digest import record_digest
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.digest.digest_files import from_bytes
from tb_gpudiag.errors import JobFailed, UsageError
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.jobs.history.run_history import histories
from tb_gpudiag.jobs.report.job_report import build_jobs
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.diagnosis import Progress
from tb_gpudiag.report.wire import from_json, to_json
from tb_gpudiag.service.analyses.diagnoses import Result, zipped
from tb_gpudiag.service.analyses.protocol import BETWEEN_SIDES, Task
from tb_gpudiag.service.caches.cache_entry import CorruptEntry, entry_at
from tb_gpudiag.service.index.run_rows import job_row, run_row
from tb_gpudiag.wording.format import count


def do(task: Task, progress: Progress) -> Result:
    """Do the task.

    Raises:
        JobFailed: a source is gone.
    """
    return _KINDS[task.kind](task, progress)


def _job(task: Task, progress: Progress) -> Result:
    progress(0.1, "comparing ranks")
    digests = _digests(task)
    found = build_jobs(digests)
    chosen = [job for job in found.reports if any(rank.id == task.ids[0] for rank in job.ranks)]
    if not chosen:
        raise UsageError(
            "This trace is not a rank of a job that was recorded on two ranks or more.",
            where=task.file.path,
            remedy=" ".join(found.notes[:3]),
        )
    ranks = {rank.id for rank in chosen[0].ranks}
    row = job_row(chosen[0], [run_row(digest) for digest in digests if digest.about.id in ranks])
    content = zipped(pb.JobState(state="ready", progress=1.0, job=chosen[0]))
    return Result(content, {}, {"row": to_json(row)})


def _history(task: Task, progress: Progress) -> Result:
    progress(0.1, "comparing recordings")
    # One for each rank, the first one first: ranks of a job keep in step.
    found = histories([*_digests(task), *_of_records(task)])[0]
    without = {id_ for id_, _, _ in task.records}
    for point in found.points:
        point.record = point.id in without
    shown = sum(point.record for point in found.points)
    if shown:
        found.notes.append(f"{count(shown, 'recording')} without a trace: from records in event files.")
    return Result(zipped(pb.HistoryState(state="ready", progress=1.0, history=found)), {}, {})


def _compare(task: Task, progress: Progress) -> Result:
    progress(0.1, "comparing")
    between = task.sources.index(BETWEEN_SIDES)
    digests = _digests(task)
    found = compare(digests[:between], digests[between:])
    return Result(zipped(pb.ComparisonState(state="ready", progress=1.0, comparison=found)), {}, {})


def _of_records(task: Task) -> Iterator[Digest]:
    for id_, time_ns, content in task.records:
        state = from_json(gzip.decompress(base64.b64decode(content)).decode("utf-8"), pb.ReportState)
        yield record_digest(state.report, id_, time_ns)


def _digests(task: Task) -> list[Digest]:
    """Read the digests. Their ids are those that the page knows."""
    digests = []
    for path, id_ in zip(task.sources, task.ids, strict=True):
        if path != BETWEEN_SIDES:
            digest = from_bytes(_content(path), path)
            digests.append(replace(digest, about=replace(digest.about, id=id_)))
    return digests


def _content(path: str) -> bytes:
    entry = entry_at(path)
    try:
        if entry is not None:
            return entry.report_gz()
    except (CorruptEntry, OSError):
        pass
    raise JobFailed("The result of one of the recordings is gone.", where=path, remedy="Reload the page.")


_KINDS: Final[Mapping[str, Callable[[Task, Progress], Result]]] = {
    "job": _job,
    "history": _history,
    "compare": _compare,
}
