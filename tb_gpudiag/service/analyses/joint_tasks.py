"""Analyses of several recordings, from their digests: a job, a history, a comparison."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.digest.digest_files import from_bytes
from tb_gpudiag.digest.record_digest import record_digest
from tb_gpudiag.errors import CorruptEntry, ProcessFailed, UsageError
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.jobs.history.run_history import histories
from tb_gpudiag.jobs.report.job_report import build_jobs
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.diagnosis import Progress
from tb_gpudiag.report.wire import from_json, to_json
from tb_gpudiag.service.analyses.diagnoses import zipped
from tb_gpudiag.service.analyses.task import DIGEST, DigestSource, EntryContent, Task
from tb_gpudiag.service.caches.cache_entry import entry_at
from tb_gpudiag.service.index.run_rows import job_row, run_row
from tb_gpudiag.wording.format import count


def do(task: Task, progress: Progress) -> EntryContent:
    """Do the task. Raises ProcessFailed: a digest is gone."""
    return _KINDS[task.kind](task, progress)


def _job(task: Task, progress: Progress) -> EntryContent:
    progress(0.1, "comparing ranks")
    (ranks,) = task.sides
    digests = _digests(ranks)
    found = build_jobs(digests)
    chosen = [job for job in found.reports if any(rank.id == ranks[0].id for rank in job.ranks)]
    if not chosen:
        raise UsageError(
            "This trace is not a rank of a job that was recorded on two ranks or more.",
            where=task.file.path,
            remedy=" ".join(found.notes[:3]),
        )
    members = {rank.id for rank in chosen[0].ranks}
    row = job_row(chosen[0], [run_row(digest) for digest in digests if digest.about.id in members])
    content = zipped(pb.ReportState(state="ready", progress=1.0, job=chosen[0]))
    return EntryContent(content, {}, {"row": to_json(row)})


def _history(task: Task, progress: Progress) -> EntryContent:
    progress(0.1, "comparing recordings")
    # The first of the histories, one for each rank: ranks of a job keep in step.
    (recordings,) = task.sides
    found = histories([*_digests(recordings), *_of_records(task)])[0]
    without = {record.id for record in task.records}
    for point in found.points:
        point.record = point.id in without
    shown = sum(point.record for point in found.points)
    if shown:
        found.notes.append(f"{count(shown, 'recording')} without a trace: from records in event files.")
    answer = pb.ReportState(state="ready", progress=1.0, history=found)
    return EntryContent(zipped(answer), {}, {})


def _compare(task: Task, progress: Progress) -> EntryContent:
    progress(0.1, "comparing")
    base, candidate = map(_digests, task.sides)
    found = compare(base, candidate)
    return EntryContent(zipped(pb.ReportState(state="ready", progress=1.0, comparison=found)), {}, {})


def _of_records(task: Task) -> Iterator[Digest]:
    for id_, time_ns, content in task.records:
        state = from_json(gzip.decompress(base64.b64decode(content)).decode("utf-8"), pb.ReportState)
        yield record_digest(state.report, id_, time_ns)


def _digests(side: Sequence[DigestSource]) -> list[Digest]:
    """Read the digests, and give them the ids that the page knows."""
    read = [(source.id, from_bytes(_content(source.path), source.path)) for source in side]
    return [replace(digest, about=replace(digest.about, id=id_)) for id_, digest in read]


def _content(path: str) -> bytes:
    entry = entry_at(path)
    try:
        if entry is not None:
            return entry.content(DIGEST)
    except (CorruptEntry, OSError):
        pass
    raise ProcessFailed("The result of one of the recordings is gone.", where=path, remedy="Reload the page.")


_KINDS: Final[Mapping[str, Callable[[Task, Progress], EntryContent]]] = {
    "job": _job,
    "history": _history,
    "compare": _compare,
}
