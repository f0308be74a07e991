"""What an analysis process is asked to do, how it saves the result, and what the page gets until then."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from tb_gpudiag.errors import GpudiagError, ProcessFailed
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.service.caches.cache import entry_key
from tb_gpudiag.service.index.log_index import TraceEntry
from tb_gpudiag.trace.files.file_names import TraceFile
from tb_gpudiag.vocabulary.patterns import lazy_re

DIGEST: Final = "digest"
"""Name of the array of a trace's entry that is its digest."""


class DigestSource(NamedTuple):
    """A cache entry with a digest, and the id of its trace as the page knows it."""

    id: str
    path: str


class RecordSource(NamedTuple):
    """A recording without a trace: its id, when it was made, and its ReportState in base64."""

    id: str
    time_ns: int
    content: str


@dataclass(frozen=True)
class Task:
    """An analysis.

    kind: a name of diagnoses.KINDS, of the file; job, history or compare, of digests.
    sides: the entries with the digests. For compare, those of the base and those of the candidate. For job,
        the first one is of a rank of the job.
    records: for history, the recordings without a trace.
    shared: directory of the team's store of results; "" if there is none.
    cache: directory of this user's cache; "" if there is none.
    source_root: folder whose lines of code findings may show; "" to show none.
    drafts: where to write the result: to the first one that can be created.
    """

    file: TraceFile
    kind: str = "diagnose"
    sides: tuple[tuple[DigestSource, ...], ...] = ()
    records: tuple[RecordSource, ...] = ()
    shared: str = ""
    cache: str = ""
    source_root: str = ""
    drafts: tuple[str, ...] = ()
    memory_limit_bytes: int = 0

    def request(self) -> dict[str, Any]:
        return {"where": self.file.path, "task": asdict(self)}

    @classmethod
    def of(cls, request: dict[str, Any]) -> Task:
        data: dict[str, Any] = request["task"]
        made = {
            "file": TraceFile(**data["file"]),
            "sides": tuple(tuple(DigestSource(*source) for source in side) for side in data["sides"]),
            "records": tuple(RecordSource(*record) for record in data["records"]),
            "drafts": tuple(data["drafts"]),
        }
        return cls(**{**data, **made})


class EntryContent(NamedTuple):
    """The content of a cache entry: see cache_entry.write_entry."""

    content: bytes
    arrays: Mapping[str, Any]
    summary: Mapping[str, str]


def save(result: EntryContent, drafts: tuple[str, ...]) -> Path:
    """Write the entry to the first draft that can be created, and return that draft. Raises ProcessFailed:
    none can be created."""
    from tb_gpudiag.service.caches.cache_entry import write_entry  # needs numpy

    reason = "there is no directory to write to"
    for draft in map(Path, drafts):
        try:
            write_entry(draft, *result)
            return draft
        except OSError as error:
            reason = error.strerror or str(error)
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
    raise ProcessFailed(
        f"The result cannot be saved: {reason}.",
        where=drafts[0] if drafts else "",
        remedy="Free space on that disk, or set GPUDIAG_CACHE_DIR to another directory.",
    )


# What only a caller of the Python interface or of a command can do: raise a limit, or name a file.
_LIMITS = lazy_re(r",? or raise Limits\.\w+", re.ASCII)
_NAMED = lazy_re(r"^name(?= an? | one )")


@dataclass(frozen=True)
class Pending:
    """State of an analysis without a result: it waits, runs, or has failed.

    report: a ReportState with the report, as gzipped JSON, if that is known before the rest of the result.
    """

    state: Literal["queued", "running", "failed", "ready"]
    progress: float = 0.0
    stage: str = ""
    error: GpudiagError | None = None
    report: bytes = b""


class ResultKeys(NamedTuple):
    """Keys in the cache: of a trace's diagnosis with the timeline, and of its report alone."""

    whole: str
    report: str


def keys_of(entry: TraceEntry) -> ResultKeys | None:
    """Return the keys of the trace's results in the cache; None if there is nothing to read."""
    file = entry.file
    if not entry.content or entry.record is not None:
        return None
    whole = entry_key(entry.content, file.run, file.worker, file.span, file.path)
    return ResultKeys(whole, entry_key("report", whole))


def problem(error: GpudiagError) -> pb.Problem:
    """Return an error as a message for the page, whose user gives no arguments and cannot change limits."""
    remedy = _NAMED.sub("choose", _LIMITS.sub("", error.remedy))
    return pb.Problem(what=error.what, where=error.where, remedy=remedy)
