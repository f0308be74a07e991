"""Messages between TensorBoard's process and an analysis process: one line of JSON each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import IO

from tb_gpudiag import errors
from tb_gpudiag.errors import GpudiagError, JobFailed
from tb_gpudiag.trace.files.file_names import TraceFile

# Longer than any message of our worker.
LINE_BYTES = 64 * 1024

# Errors that are not about the file: trying again later may succeed. After a bug or at a limit, the same file
# fails again.
TRANSIENT = (errors.JobFailed, errors.Unreadable)


BETWEEN_SIDES = ""


@dataclass(frozen=True)
class Task:
    """Task of a worker. It writes the result to the first of `drafts` that it can create.

    kind: diagnose or digest (the file), job, history or compare (the digests in `sources`).
    sources: cache entries. For digest, an entry of the diagnosis, which contains the digest; for compare,
    those of the base, BETWEEN_SIDES, and those of the candidate.
    shared: directory of the shared cache; "" without one.
    ids: of the traces of the digests, as the page knows them; for job, the first one is a rank of it.
    records: for history, of recordings without a trace: id, Unix time in ns, and the ReportState in base64.
    """

    file: TraceFile
    drafts: list[str]
    memory_limit_bytes: int
    parent: int  # process id of TensorBoard
    kind: str = "diagnose"
    sources: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    records: tuple[tuple[str, int, str], ...] = ()
    shared: str = ""

    def to_line(self) -> bytes:
        return _line(asdict(self))

    @classmethod
    def from_line(cls, line: bytes) -> Task:
        data = json.loads(line)
        lists = {name: tuple(data[name]) for name in ("sources", "ids", "records")}
        return cls(**{**data, **lists, "file": TraceFile(**data["file"])})


@dataclass(frozen=True)
class Progress:
    """Share of the work that is done, from 0 to 1, and the name of the stage."""

    share: float
    stage: str

    def to_line(self) -> bytes:
        return _line({"progress": self.share, "stage": self.stage})


@dataclass(frozen=True)
class Done:
    """The result is in `draft`."""

    draft: str

    def to_line(self) -> bytes:
        return _line({"done": self.draft})


@dataclass(frozen=True)
class Failed:
    """There is no result, because of `error`."""

    error: GpudiagError

    def to_line(self) -> bytes:
        return line_of_error(self.error)


def parse(lines: IO[bytes]) -> Iterator[Progress | Done | Failed]:
    """Yield the messages of a worker as they come. Skip lines that are not messages."""
    while line := lines.readline(LINE_BYTES):
        try:
            data = json.loads(line)
            if "done" in data:
                yield Done(str(data["done"]))
            elif "failed" in data:
                yield Failed(error_of(data))
            elif "progress" in data:
                yield Progress(min(max(float(data["progress"]), 0.0), 1.0), str(data["stage"]))
        except (ValueError, TypeError, KeyError):
            continue


def line_of_error(error: GpudiagError) -> bytes:
    """Return an error as one line, for `error_of`."""
    return _line(
        {"failed": type(error).__name__, "what": error.what, "where": error.where, "remedy": error.remedy}
    )


def error_of(data: dict[str, object]) -> GpudiagError:
    """Return the error of a line, whatever it contains."""
    kind = getattr(errors, str(data["failed"]), JobFailed)
    if not (isinstance(kind, type) and issubclass(kind, GpudiagError)):
        kind = JobFailed
    return kind(str(data["what"]), where=str(data["where"]), remedy=str(data["remedy"]))


def _line(data: object) -> bytes:
    return json.dumps(data).encode("ascii") + b"\n"
