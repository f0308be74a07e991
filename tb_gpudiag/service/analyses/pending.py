"""Results that are not there yet, and the key of a diagnosis in the cache."""

from __future__ import annotations

import re
from typing import Literal

from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.service.caches.cache import entry_key
from tb_gpudiag.service.index.log_index import TraceEntry
from tb_gpudiag.vocabulary.patterns import lazy_re

# What only a caller of the Python interface or of a command can do: raise a limit, or name a file.
_LIMITS = lazy_re(r",? or raise Limits\.\w+", re.ASCII)
_NAMED = lazy_re(r"^name(?= an? | one )")


@dataclass(frozen=True)
class Pending:
    """State of an analysis without a result: it waits, runs, or has failed.

    report: a ReportState with the report, as gzipped JSON, if that is known before the rest of the result.
    """

    state: Literal["queued", "running", "failed"]
    progress: float = 0.0
    stage: str = ""
    error: GpudiagError | None = None
    report: bytes = b""


def diagnosis_key(entry: TraceEntry) -> str:
    """Return the key of the trace's diagnosis in the cache; "" if there is nothing to read."""
    file = entry.file
    if not entry.content or entry.record is not None:
        return ""
    return entry_key(entry.content, file.run, file.worker, file.span, file.path)


def problem(error: GpudiagError) -> pb.Problem:
    """Return an error as a message for the page, whose user gives no arguments and cannot change limits."""
    remedy = _NAMED.sub("choose", _LIMITS.sub("", error.remedy))
    return pb.Problem(what=error.what, where=error.where, remedy=remedy)
