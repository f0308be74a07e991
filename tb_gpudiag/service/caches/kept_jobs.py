"""The answer about a job, kept until one of its traces changes, or the code does.

Reading it again takes none of the libraries that judge a job.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
from google.protobuf.message import DecodeError

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.report.job_view import JobReports
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.service.caches.cache import entry_key
from tb_gpudiag.service.caches.cache_entry import write_to
from tb_gpudiag.service.caches.claims import content_key, fingerprint
from tb_gpudiag.service.caches.shared_cache import SharedCache
from tb_gpudiag.trace.files.find import TraceFile


@dataclass(frozen=True)
class JobMarks:
    """What tells the traces of a job from others. An answer names traces as its reader does."""

    key: str
    fingerprint: str


def job_marks(files: Sequence[TraceFile]) -> JobMarks | None:
    """Open the traces and return their marks; None if they cannot be told from others."""
    keys = [content_key("digest", file) for file in files]
    prints = [fingerprint(file) for file in files] if all(keys) else []
    if not prints or not all(prints):
        return None
    names = (part for file in files for part in (file.identity, file.run, file.path))
    joined = hashlib.blake2b("".join(prints).encode(), digest_size=16).hexdigest()
    return JobMarks(entry_key("job", *keys, *names), joined)


def find_job(marks: JobMarks, cache: SharedCache) -> JobReports | None:
    """Return the answer about the job with these marks; None if none is kept."""
    found = cache.find(marks.key, marks.fingerprint)
    if found is None:
        return None
    try:
        reports = [pb.JobReport.FromString(one.tobytes()) for one in found[0].arrays.values()]
        return JobReports(reports, [str(note) for note in json.loads(found[0].report_gz)])
    except (DecodeError, ValueError, TypeError):
        return None


def keep_job(marks: JobMarks, jobs: JobReports, cache: SharedCache) -> None:
    contents = [np.frombuffer(report.SerializeToString(), np.uint8) for report in jobs.reports]
    arrays = {f"job {number}": content for number, content in enumerate(contents)}
    summary = {"key": marks.key, "trace": marks.fingerprint}
    cache.put(marks.key, lambda file: write_to(file, json.dumps(jobs.notes).encode(), arrays, summary))
