"""Results of one trace: as objects, and as the cache entry that every process and user reads; and how
everyone obtains one: from the store of results, or else by analyzing the trace.

Only a process that can open the trace gets a result, and only if it is the same trace that was analyzed.
A command reads databases in a process of its own: SQLite runs for as long as a database makes it run, and
only its process can be ended.
"""

from __future__ import annotations

import gzip
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np
from google.protobuf.message import Message

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.digest.digest_files import from_bytes, to_bytes
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.trace_message import name_file
from tb_gpudiag.report.wire import from_json, to_json
from tb_gpudiag.service.analyses.task import DIGEST, EntryContent, Task
from tb_gpudiag.service.caches.cache_entry import Unpacked, unpack, write_to
from tb_gpudiag.service.caches.claims import claim_of, content_key, fingerprint, known_or_claimed
from tb_gpudiag.service.caches.shared_cache import SharedCache
from tb_gpudiag.service.index.run_rows import run_row
from tb_gpudiag.service.processes.gate import ask_apart
from tb_gpudiag.service.settings import command_memory_limit_bytes
from tb_gpudiag.trace.files.find import TraceFile, may_be_database

if TYPE_CHECKING:
    from tb_gpudiag.facts.facts import Facts
    from tb_gpudiag.report.diagnosis import Progress


# What reads traces takes a while to import: whoever finds all results does without.

# Far more than any report has.
_MOST_REPORT_BYTES: Final = 1 << 30


@dataclass(frozen=True, kw_only=True)
class AnalyzedTrace:
    """The result of an analysis: at least the digest of the trace.

    make_digest: makes the digest when it is first used: a page gets its report before that.
    origin: whose result it is; "" for one of this process.
    is_final: analyzing the same file later would give the same result.
    marks: how others recognize which trace the result is of; empty if it is not to be shared.
    """

    make_digest: Callable[[], Digest]
    origin: str = ""
    is_final: bool = True
    marks: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def digest(self) -> Digest:
        return self.make_digest()

    @cached_property
    def entry(self) -> EntryContent:
        return EntryContent(to_bytes(self.digest), {}, self._summary())

    def _summary(self) -> dict[str, str]:
        """Return what the lists show."""
        about = self.digest.about
        summary = {"limiter": about.limiter, "sentence": about.sentence, "row": to_json(run_row(self.digest))}
        return {**summary, **({"origin": self.origin} if self.origin else {}), **self.marks}


@dataclass(frozen=True, kw_only=True)
class Diagnosis(AnalyzedTrace):
    """A trace's report, digest, and arrays of the page, which are made when they are used.

    is_whole: there are such arrays, if the page has something to show of them.
    """

    report: pb.Report
    prepare: Callable[[], Mapping[str, Any]]
    is_whole: bool = True

    @cached_property
    def arrays(self) -> Mapping[str, Any]:
        """The arrays that the page's slices are cut from."""
        return self.prepare()

    @cached_property
    def entry(self) -> EntryContent:
        arrays = {**self.arrays, DIGEST: np.frombuffer(to_bytes(self.digest), np.uint8)}
        ready = pb.ReportState(state="ready", progress=1.0, report=self.report)
        state = ready if self.is_whole else early_state(self.report)
        return EntryContent(zipped(state), arrays, self._summary())


EARLY_SHARE: Final = 0.9
EARLY_STAGE: Final = "preparing the timeline"


def early_state(report: pb.Report) -> pb.ReportState:
    """Return what the page gets while only the report is known."""
    return pb.ReportState(state="running", progress=EARLY_SHARE, stage=EARLY_STAGE, report=report)


R = TypeVar("R", bound=AnalyzedTrace)


@dataclass(frozen=True)
class ResultKind(Generic[R]):
    """A kind of result of one trace.

    found_in: names of the kinds of entries that contain such a result.
    of_entry: reads the result from such an entry; raises any exception if the entry is not valid.
    of_trace: analyzes the trace; raises TraceError.
    """

    name: str
    found_in: tuple[str, ...]
    of_entry: Callable[[Unpacked, TraceFile, str], R]
    of_trace: Callable[[TraceFile, Progress], R]


def without_page(found: Diagnosis) -> Diagnosis:
    """Return the diagnosis as commands and the user's own store have it: without the arrays of the page."""
    return replace(found, make_digest=lambda: found.digest, prepare=dict, is_whole=False)


def diagnose_trace(file: TraceFile, progress: Progress | None = None) -> Diagnosis:
    """Read and diagnose a trace, the dumps of a job that hangs, or step clocks. Raises GpudiagError: the file
    cannot be read."""
    if file.kind == "hang":
        return _diagnose_dumps(file)
    if file.kind == "clock":
        return _diagnose_clocks(file)
    from tb_gpudiag.digest.build_digest import build_digest
    from tb_gpudiag.report.building.build import build_report
    from tb_gpudiag.report.diagnosis import read_facts

    facts = read_facts(file, progress)
    report = build_report(facts, file)
    return Diagnosis(
        report=report,
        make_digest=partial(build_digest, facts, report, file),
        prepare=partial(_prepared, facts),
        is_final=report.trace.status != pb.TraceInfo.WRITING,
    )


def _diagnose_dumps(file: TraceFile) -> Diagnosis:
    from tb_gpudiag.digest.record_digest import record_digest
    from tb_gpudiag.report.building.hang_report import report_on_dumps
    from tb_gpudiag.service.analyses.hangs import hang_at

    report = report_on_dumps(file, *hang_at([file.path], file.folder))
    digest = record_digest(report, file.identity, file.modified_ns)
    # No rule found it, and the table of runs says it, among the errors.
    if report.hang.why not in (pb.HangReport.NO_HANG, pb.HangReport.CANNOT_TELL, pb.HangReport.EMPTY):
        digest.findings.append(pb.Finding(severity="ERROR", title=report.verdict.headline))
    return Diagnosis(report=report, make_digest=lambda: digest, prepare=dict)


def _diagnose_clocks(file: TraceFile) -> Diagnosis:
    from tb_gpudiag.digest.record_digest import record_digest
    from tb_gpudiag.report.building.clock_report import report_on_clocks

    report, arrays = report_on_clocks(file)
    digest = record_digest(report, file.identity, file.modified_ns)
    if report.clock.drifts:
        digest.findings.append(pb.Finding(severity="WARNING", title=report.verdict.headline))
    return Diagnosis(report=report, make_digest=lambda: digest, prepare=lambda: arrays)


def _digest_trace(file: TraceFile, progress: Progress) -> AnalyzedTrace:
    if file.kind in ("hang", "clock"):
        digest, is_final = diagnose_trace(file, progress).digest, True
    else:
        # The digest of a trace, without the parts of its report that no digest has, and whether it is
        # final.
        from tb_gpudiag.digest.build_digest import build_digest
        from tb_gpudiag.report.building.build import build_essentials
        from tb_gpudiag.report.diagnosis import read_facts

        facts = read_facts(file, progress)
        report = build_essentials(facts, file)
        digest, is_final = build_digest(facts, report, file), report.trace.status != pb.TraceInfo.WRITING
    return AnalyzedTrace(make_digest=lambda: digest, is_final=is_final)


def _prepared(facts: Facts) -> Mapping[str, Any]:
    """Return the arrays that the page's slices are cut from."""
    from tb_gpudiag.report.slices.memory_history import prepare_memory
    from tb_gpudiag.report.slices.memory_slice import prepare_stacks
    from tb_gpudiag.report.slices.operators.prepare_calls import prepare_calls
    from tb_gpudiag.report.slices.segment_map import prepare_segments
    from tb_gpudiag.report.slices.timeline import prepare_timeline

    memory = prepare_memory(facts) | prepare_stacks(facts) | prepare_segments(facts)
    return prepare_timeline(facts) | prepare_calls(facts) | memory


def _diagnosis_in(found: Unpacked, file: TraceFile, origin: str) -> Diagnosis:
    """Return the diagnosis in another user's entry of this trace, with this user's names for the trace."""
    unpacker = zlib.decompressobj(wbits=31)
    unpacked = unpacker.decompress(found.report_gz, _MOST_REPORT_BYTES)
    if not unpacker.eof:
        raise ValueError("too large, or cut off")
    state = from_json(unpacked.decode("utf-8"), pb.ReportState)
    if not state.HasField("report"):
        raise ValueError("not a diagnosis")
    name_file(state.report.trace, file)
    arrays = dict(found.arrays)
    digest = _named_here(arrays.pop(DIGEST).tobytes(), file)
    return Diagnosis(report=state.report, make_digest=lambda: digest, prepare=lambda: arrays, origin=origin)


def _digest_in(found: Unpacked, file: TraceFile, origin: str) -> AnalyzedTrace:
    """Return the digest in another user's entry of this trace: a digest, or a diagnosis that contains it."""
    content = found.arrays[DIGEST].tobytes() if found.arrays else found.report_gz
    digest = _named_here(content, file)
    return AnalyzedTrace(make_digest=lambda: digest, origin=origin)


def _named_here(content: bytes, file: TraceFile) -> Digest:
    """Return another user's digest of this trace, with this user's names for the trace."""
    digest = from_bytes(content, file.path)
    named = pb.TraceInfo(kind=digest.about.kind, rank=digest.about.rank)
    name_file(named, file)
    about = replace(
        digest.about, id=file.identity, run=named.run, worker=named.worker, path=named.path, rank=named.rank
    )
    return replace(digest, about=about)


DIAGNOSIS: Final = ResultKind("diagnose", ("diagnose",), _diagnosis_in, diagnose_trace)
REPORT: Final = ResultKind(
    "report",
    ("report", "diagnose"),
    _diagnosis_in,
    lambda file, progress: without_page(diagnose_trace(file, progress)),
)
ONLY_DIGEST: Final = ResultKind("digest", ("digest", "report", "diagnose"), _digest_in, _digest_trace)
KINDS: Final[Mapping[str, ResultKind[Any]]] = {kind.name: kind for kind in (DIAGNOSIS, REPORT, ONLY_DIGEST)}


def zipped(message: Message) -> bytes:
    """Return the message as gzipped JSON."""
    return gzip.compress(to_json(message).encode("utf-8"), mtime=0)


def obtain(
    file: TraceFile,
    kind: ResultKind[R],
    shared: SharedCache | None,
    progress: Progress = lambda share, stage: None,
    *,
    share_later: bool = False,
) -> R:
    """Return the result of a trace.

    shared: the store; None if there is none.
    share_later: the caller puts the result into the store.
    Raises TraceError: the file cannot be read.
    """
    claim = claim_of(kind.name, file, shared)
    found = known_or_claimed(partial(known, file, kind, shared), claim, progress)
    if found is not None:
        return found
    to_share = False
    try:
        marks = _marks(file, kind) if shared is not None else {}
        found = kind.of_trace(file, progress)
        if marks and found.is_final and _marks(file, kind) == marks:  # the trace has not changed meanwhile
            found = replace(found, marks=marks)
            to_share = shared is not None
        if shared is not None and to_share and not share_later:
            share(found, file, shared)
        return found
    finally:
        if claim is not None and not (to_share and share_later):
            claim.release()


def known(file: TraceFile, kind: ResultKind[R], shared: SharedCache | None) -> R | None:
    """Return the result of this trace that is in the store; None if there is none."""
    for entry, origin in _entries(file, kind, shared):
        try:
            return kind.of_entry(entry, file, origin)
        except Exception:  # whatever is in the entry: the trace is analyzed instead
            continue
    return None


def share(result: AnalyzedTrace, file: TraceFile, shared: SharedCache) -> None:
    """Put a marked result into the store: whole into a team's, without the page's arrays into the user's."""
    if not result.marks:
        return
    if shared.is_own and isinstance(result, Diagnosis):
        marks = {**result.marks, "key": content_key(REPORT.name, file)}
        result = replace(without_page(result), marks=marks)
    content, arrays, summary = result.entry
    shared.put(summary["key"], lambda out: write_to(out, content, arrays, summary))


def _marks(file: TraceFile, kind: ResultKind[R]) -> dict[str, str]:
    """Return how others recognize the result of this trace, as it is now; nothing if they cannot."""
    key = content_key(kind.name, file)
    mark = fingerprint(file) if key else ""
    return {"key": key, "trace": mark} if mark else {}


def _entries(
    file: TraceFile, kind: ResultKind[R], shared: SharedCache | None
) -> Iterator[tuple[Unpacked, str]]:
    """Yield entries of this trace, each with its origin; "" for one of this user's own store."""
    if shared is None or not content_key("", file):
        return
    mark = fingerprint(file)
    for name in kind.found_in:
        entry = shared.find(content_key(name, file), mark)
        if entry is not None:
            yield entry[0], "" if shared.is_own else f"{entry[1]} (shared cache)"


MODULE: Final = "tb_gpudiag.service.analyses.worker"


def databases_apart(kind: ResultKind[R]) -> ResultKind[R]:
    """Return a kind of result, for which databases are analyzed in a process of their own."""
    return replace(kind, of_trace=partial(_analyze, kind))


def _analyze(kind: ResultKind[R], file: TraceFile, progress: Progress) -> R:
    if not may_be_database(file):
        return kind.of_trace(file, progress)
    with tempfile.TemporaryDirectory(prefix="gpudiag-") as folder:
        draft = Path(folder, "result")
        # The process runs in another directory.
        there = replace(file, path=os.path.abspath(file.path) if os.path.exists(file.path) else file.path)
        task = Task(there, kind.name, drafts=(str(draft),), memory_limit_bytes=command_memory_limit_bytes())
        ask_apart(MODULE, task.request() | {"where": file.path}, progress)
        with open(draft, "rb") as content:
            return kind.of_entry(unpack(content, draft), file, "")
