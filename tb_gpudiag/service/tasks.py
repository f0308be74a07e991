"""What an analysis process does, by the kind of its task. Imported in that process only."""

from __future__ import annotations

import base64
import contextlib
import gzip
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from tb_gpudiag.digest.building.record_digest import record_digest
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.digest.file import from_bytes
from tb_gpudiag.errors import JobFailed, UsageError
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.jobs.history.run_history import histories
from tb_gpudiag.jobs.report.job_report import build_jobs
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.diagnosis import Progress
from tb_gpudiag.report.wire import from_json, to_json
from tb_gpudiag.service.claims import Claim, claim_of, known_or_claimed
from tb_gpudiag.service.diagnoses import DIGEST, Result, diagnose_whole, zipped
from tb_gpudiag.service.entry import CorruptEntry, Entry, read_entry
from tb_gpudiag.service.protocol import BETWEEN_SIDES, Task
from tb_gpudiag.service.reuse import (
    Marker,
    known_diagnosis,
    known_digest,
    new_digest,
    without_marks,
)
from tb_gpudiag.service.run_rows import job_row, run_row
from tb_gpudiag.service.shared_cache import SharedCache
from tb_gpudiag.wording.format import count

# Results of others are read within seconds, unless their storage is down.
LOOK_AT_MOST_S: Final = 30.0

T = TypeVar("T")


def do(task: Task, progress: Progress) -> Result:
    """Do the task.

    Raises:
        TraceError: the file cannot be read.
        JobFailed: a source is gone.
    """
    return _KINDS[task.kind](task, progress)


def _diagnose(task: Task, progress: Progress) -> Result:
    shared = _shared(task)
    claim = claim_of("diagnose", task.file, shared)
    known = known_or_claimed(partial(known_diagnosis, task.file, shared), claim, progress, _soon)
    if known is not None:
        return known.result()
    with _until_shared(claim) as shown:
        marker = Marker(task.file) if shared is not None else None
        found = diagnose_whole(task.file, progress)
        progress(0.95, "saving")
        result = found.result()
        return shown(marker.marked(result, "diagnose") if marker is not None and found.is_final else result)


def _digest(task: Task, progress: Progress) -> Result:
    for path in task.sources:
        entry = _entry(path)
        if entry is not None and DIGEST in entry.columns:
            return Result(entry.content(DIGEST), {}, without_marks(entry.summary))
    shared = _shared(task)
    claim = claim_of("digest", task.file, shared)
    known = known_or_claimed(partial(known_digest, task.file, shared), claim, progress, _soon)
    if known is not None:
        return known
    with _until_shared(claim) as shown:
        return shown(new_digest(task.file, progress, marked=shared is not None))


@contextlib.contextmanager
def _until_shared(claim: Claim | None) -> Iterator[Callable[[Result], Result]]:
    """Release the claim, but not that of a result to share: TensorBoard does that, which releases it."""
    to_share = False

    def note(result: Result) -> Result:
        nonlocal to_share
        to_share = bool(result.summary.get("key"))
        return result

    try:
        yield note
    finally:
        if claim is not None and not to_share:
            claim.release()


def _shared(task: Task) -> SharedCache | None:
    return SharedCache(Path(task.shared), 0) if task.shared else None


def _soon(look: Callable[[], T | None]) -> T | None:
    """Return what is found; None if the storage does not answer soon: the trace is analyzed instead."""
    found: list[T | None] = []
    thread = threading.Thread(target=lambda: found.append(look()), name="gpudiag-look", daemon=True)
    thread.start()
    thread.join(LOOK_AT_MOST_S)
    return found[0] if found else None


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
    entry = _entry(path)
    try:
        if entry is not None:
            return entry.report_gz()
    except (CorruptEntry, OSError):
        pass
    raise JobFailed("The result of one of the recordings is gone.", where=path, remedy="Reload the page.")


def _entry(path: str) -> Entry | None:
    try:
        return read_entry(Path(path))
    except (CorruptEntry, OSError):
        return None


_KINDS: Final[Mapping[str, Callable[[Task, Progress], Result]]] = {
    "diagnose": _diagnose,
    "digest": _digest,
    "job": _job,
    "history": _history,
    "compare": _compare,
}
