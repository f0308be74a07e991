"""One trace's diagnosis: as objects, and as the cache entry that every process and user reads."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from google.protobuf.message import Message

from tb_gpudiag.digest.building.build_digest import build_digest
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.digest.digest_files import from_bytes, to_bytes
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.building.trace_message import name_file
from tb_gpudiag.report.diagnosis import Progress, read_facts
from tb_gpudiag.report.slices.memory_history import prepare_memory
from tb_gpudiag.report.slices.memory_stacks import prepare_stacks
from tb_gpudiag.report.slices.operators.prepare_calls import prepare_calls
from tb_gpudiag.report.slices.segment_map import prepare_segments
from tb_gpudiag.report.slices.timeline import prepare_timeline
from tb_gpudiag.report.wire import from_json, to_json
from tb_gpudiag.service.analyses.task import EntryContent
from tb_gpudiag.service.caches.cache_entry import Unpacked
from tb_gpudiag.service.index.run_rows import run_row
from tb_gpudiag.trace.files.find import TraceFile

DIGEST: Final = "digest"
"""Name of the array of a diagnosis's entry that is its digest."""

# Reports have some megabytes.
_MOST_REPORT_BYTES: Final = 1 << 30


@dataclass(frozen=True)
class Diagnosis:
    """A trace's report, digest, and arrays of the page. origin: whose result it is; "" if of this process."""

    report: pb.Report
    digest: Digest
    arrays: Mapping[str, Any]
    origin: str = ""

    def result(self) -> EntryContent:
        """Return the cache entry."""
        arrays = {**self.arrays, DIGEST: np.frombuffer(to_bytes(self.digest), np.uint8)}
        state = pb.ReportState(state="ready", progress=1.0, report=self.report)
        return EntryContent(zipped(state), arrays, _summary(self.digest, self.origin))

    @property
    def is_final(self) -> bool:
        """Whether reading the same file later gives the same diagnosis."""
        return self.report.trace.status != pb.TraceInfo.WRITING


def diagnose_whole(file: TraceFile, progress: Progress | None = None) -> Diagnosis:
    """Read and diagnose a trace.

    Raises:
        TraceError: the file cannot be read.
    """
    facts = read_facts(file, progress)
    report = build_report(facts, file)
    digest = build_digest(facts, report, file)
    if progress is not None:
        progress(0.9, "preparing the timeline")
    return Diagnosis(report, digest, prepared_of(facts))


def prepared_of(facts: Facts) -> Mapping[str, Any]:
    """Return the arrays that the page's slices are cut from."""
    memory = prepare_memory(facts) | prepare_stacks(facts) | prepare_segments(facts)
    return prepare_timeline(facts) | prepare_calls(facts) | memory


def diagnosis_in(found: Unpacked, file: TraceFile, origin: str) -> Diagnosis:
    """Return the diagnosis in an entry that somebody else wrote of this trace, under the names that this user
    sees it.

    Raises:
        Exception: of any kind, if it is not such an entry.
    """
    state = from_json(_unzipped(found.report_gz).decode("utf-8"), pb.ReportState)
    if state.state != "ready":
        raise ValueError("not a diagnosis")
    name_file(state.report.trace, file)
    arrays = dict(found.arrays)
    digest = digest_in(arrays.pop(DIGEST).tobytes(), file)
    return Diagnosis(state.report, digest, arrays, origin)


def digest_in(content: bytes, file: TraceFile) -> Digest:
    """Return a digest that somebody else wrote of this trace, under the names that this user sees it.

    Raises:
        TraceError: it is not a digest.
    """
    digest = from_bytes(content, file.path)
    named = pb.TraceInfo()
    name_file(named, file)
    about = replace(digest.about, id=file.identity, run=named.run, path=named.path)
    return replace(digest, about=about)


def digest_result(digest: Digest, origin: str = "") -> EntryContent:
    """Return the cache entry of a digest alone."""
    return EntryContent(to_bytes(digest), {}, _summary(digest, origin))


def zipped(message: Message) -> bytes:
    """Return the message as gzipped JSON."""
    return gzip.compress(to_json(message).encode("utf-8"), mtime=0)


def _summary(digest: Digest, origin: str) -> dict[str, str]:
    """Return what the lists show."""
    about = digest.about
    summary = {"limiter": about.limiter, "sentence": about.sentence, "row": to_json(run_row(digest))}
    return {**summary, "origin": origin} if origin else summary


def _unzipped(content: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    unpacked = unpacker.decompress(content, _MOST_REPORT_BYTES)
    if not unpacker.eof:
        raise ValueError("too large, or cut off")
    return unpacked
