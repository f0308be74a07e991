"""What a file of a log directory is, by its name and its first bytes: of torch.profiler, of
torch.cuda._memory_viz, of a step clock, or of another program."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from tb_gpudiag.errors import GpudiagError, NotATrace
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.patterns import lazy_re

if TYPE_CHECKING:
    from tb_gpudiag.vocabulary.recorded import FileKind


_TRACE_NAME: Final = lazy_re(r"(?P<worker>.*?)(?:\.(?P<span>[0-9]+))?\.pt\.trace\.json(?:\.gz)?", re.DOTALL)
_SNAPSHOT_NAME: Final = lazy_re(
    r"(?P<worker>.*?)(?:\.(?P<span>[0-9]+))?\.(?:(?:pickle|pkl)(?:\.gz)?|html)", re.DOTALL
)
# `export_memory_timeline` takes any name. No other files have these names.
_TIMELINE_NAME: Final = lazy_re(
    r"(?P<worker>.*?)(?:\.(?P<span>[0-9]+))?(?:\.raw\.json\.gz|(?<=memory_timeline)\.json(?:\.gz)?)",
    re.DOTALL,
)
# `export_chrome_trace` takes any name, proton appends `.chrome_trace`, and other programs also write JSON,
# traces of Perfetto and pickles: the content decides.
ANY_JSON: Final = lazy_re(r".*\.(?:json|chrome_trace)(?:\.gz)?", re.DOTALL)
ANY_PFTRACE: Final = lazy_re(r".*\.pftrace(?:\.gz)?", re.DOTALL)
ANY_DATABASE: Final = lazy_re(r".*\.sqlite(?:\.gz)?", re.DOTALL)
_JSON_NAME: Final = lazy_re(
    r"(?P<worker>.*?)(?:\.(?P<span>[0-9]+))?(?:\.json|\.chrome_trace|\.pftrace|\.sqlite)?(?:\.gz)?", re.DOTALL
)
# Each version of a file is opened once. With more files than this, they are opened again on every scan.
FILES_REMEMBERED: Final = 1 << 18


@dataclass(frozen=True)
class TraceFile:
    """One trace file below a log directory."""

    path: str  # for read_trace
    run: str  # its folder relative to the log directory, "." for that itself, as TensorBoard names runs
    worker: str
    span: str  # digits; empty if the name has none
    size_bytes: int
    modified_ns: int  # since 1970; 0 if the store does not say
    identity: str  # changes whenever the file does
    kind: FileKind = "trace"  # by its name; only reading it makes sure
    folder: str = ""  # see opening.open_local
    torch_trace: str = ""  # a log of torch.compile, or a folder of logs, that a user named for this trace
    capture: str = ""  # the recording of the capture of its graphs, or a folder of them, likewise


@dataclass
class Found:
    """Trace files, sorted by run, worker and span, and the folders and files that could not be read.

    lost: a store did not answer, so there may be more files.
    folders: those with dumps of the flight recorder, or with step clocks, which are one job each.
    """

    files: list[TraceFile] = field(default_factory=list)
    problems: list[GpudiagError] = field(default_factory=list)
    lost: bool = False
    folders: list[TraceFile] = field(default_factory=list)


class FileVersion(Protocol):
    """One version of a file's content: a tuple of what differs between versions."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def modified_ns(self) -> int: ...

    def __iter__(self) -> Iterator[object]: ...


def trace_file(path: str, run: str, name: str, content: FileVersion, folder: str = "") -> TraceFile:
    """Describe a version of a file."""
    kind = kind_of(name)
    match = (_NAMES[kind] if kind else _JSON_NAME).fullmatch(name)
    worker, span = (match["worker"], match["span"] or "") if match is not None else (name, "")
    above, _, folder_name = run.rpartition("/")
    if kind == "snapshot" and named_rank(worker) is None and named_rank(folder_name) is not None:
        run, worker = above or ".", f"{folder_name}/{worker}"  # a folder for each rank, as torchtnt makes
    identity = hashlib.blake2b(
        repr((path, tuple(content))).encode("utf-8", "surrogatepass"), digest_size=16
    ).hexdigest()
    return TraceFile(
        path,
        _text(run),
        _text(worker),
        span,
        content.size_bytes,
        content.modified_ns,
        identity,
        kind or "trace",
        folder,
    )


def folder_file(path: str, run: str, files: Sequence[FileVersion], folder: str, kind: FileKind) -> TraceFile:
    """Describe files of a folder that are listed together. folder: as of TraceFile."""
    identity = hashlib.blake2b(
        repr((path, *map(tuple, files))).encode("utf-8", "surrogatepass"), digest_size=16
    ).hexdigest()
    size_bytes = sum(file.size_bytes for file in files)
    newest_ns = max(file.modified_ns for file in files)
    return TraceFile(path, _text(run), _WORKERS[kind], "", size_bytes, newest_ns, identity, kind, folder)


def worker_and_span(name: str) -> tuple[str, str]:
    """Return what the name of a recording says; the whole name and no span for other names."""
    match = _TRACE_NAME.fullmatch(name)
    return (_text(match["worker"]), match["span"] or "") if match is not None else (_text(name), "")


_WORKERS: Final[dict[FileKind, str]] = {"hang": "flight recorder", "clock": "step clock"}

_NAMES: Final[dict[FileKind, re.Pattern[str]]] = {
    "trace": _TRACE_NAME,
    "snapshot": _SNAPSHOT_NAME,
    "memory_timeline": _TIMELINE_NAME,
}


CERTAIN: Final[frozenset[FileKind]] = frozenset({"trace", "memory_timeline"})
"""Kinds whose file names no other program uses."""


@lru_cache(FILES_REMEMBERED)
def kind_of(name: str) -> FileKind | None:
    """Return what a file in a log directory is by its name; None if the name does not say."""
    return next((kind for kind, pattern in _NAMES.items() if pattern.fullmatch(name)), None)


def may_be_trace(name: str) -> bool:
    """Return whether a file with this name may be a trace: its content decides."""
    return any(pattern.fullmatch(name) for pattern in (ANY_JSON, ANY_PFTRACE, ANY_DATABASE))


def _text(name: str) -> str:
    """Make a file name that can be shown and sent: bytes that are not Unicode become question marks."""
    return name.encode("utf-8", "replace").decode()


REPORT_SUFFIXES: Final = (".nsys-rep", ".qdrep", ".qdstrm")
"""Names of reports that only `nsys` itself can read."""

MAGIC: Final = b"SQLite format 3\x00"
"""How each SQLite file starts."""

EXPORT_HEAD_BYTES: Final = 64 << 10
"""The names of an export's tables are in its first pages."""

_TABLES: Final = lazy_re(
    rb"CREATE TABLE \"?(CUPTI_ACTIVITY_KIND_|TARGET_INFO_|META_DATA_EXPORT|NVTX_EVENTS|ENUM_NSYS_|OSRT_API)"
)

_TIMELINE: Final = lazy_re(rb"\s*\[\s*\[\s*[-0-9\]]")

_ROCPROF: Final = lazy_re(rb'\s*\{\s*"rocprofiler-sdk-tool"\s*:\s*\[')

# Each packet of Perfetto's binary traces: the tag of field 1, and a length of up to five bytes.
_PACKET: Final = lazy_re(rb"\n([\x80-\xff]{0,4}[\x00-\x7f])", re.DOTALL)
_PACKETS_SEEN: Final = 3
_BINARY: Final = lazy_re(rb"[\x00-\x08\x0e-\x1f]")  # not in text
_OPENINGS: Final = (b"{", b"[", b"<")

_OPENS_DICT: Final = rb"\}(?:\x94|q.)?\("
_TEXT_FOLLOWS: Final = rb"(?:\x8c.|X.{4})"
# The protocol, a frame, then a dict with its first key, or a list of segments with their first two.
_SNAPSHOT: Final = lazy_re(
    rb"(?s:\x80[\x02-\x05](?:\x95.{8})?(?:%(dict)s%(text)s(?:segments|device_traces)"
    rb"|\](?:\x94|q.)?\(?%(dict)s%(text)sdevice(?:\x94|q.)?K.%(text)saddress))"
    % {b"dict": _OPENS_DICT, b"text": _TEXT_FOLLOWS}
)


def is_pickle(head: bytes) -> bool:
    """Return whether a file that starts like this is a pickle of protocol 2 or later, as torch writes."""
    return len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def is_snapshot(head: bytes) -> bool:
    """Return whether it is a pickle of a memory snapshot, or a list of segments (`memory_snapshot()`)."""
    return _SNAPSHOT.match(head) is not None


def is_memory_timeline(head: bytes) -> bool:
    """Return whether a file that starts like this is a memory timeline: lists of numbers, not objects."""
    return _TIMELINE.match(head) is not None


def is_database(head: bytes) -> bool:
    """Return whether a file that starts like this is an SQLite database."""
    return head.startswith(MAGIC)


def is_export(head: bytes) -> bool:
    """Return whether a file that starts like this is an SQLite file of Nsight Systems."""
    return is_database(head) and _TABLES.search(head) is not None


def is_report(path: str) -> bool:
    """Return whether a report of Nsight Systems has such a name."""
    return path.endswith(REPORT_SUFFIXES)


def exported_path(path: str) -> str:
    """Return where `nsys export` puts what it makes of a report."""
    return f"{os.path.splitext(path)[0]}.sqlite"


def report_refused(path: str) -> NotATrace:
    """Return the error that says how to export a report."""
    return NotATrace(
        "it is a report of Nsight Systems, which only nsys can read",
        where=path,
        remedy=f"export it: nsys export --type sqlite {path}, then name the .sqlite file; "
        "gpudiag diagnose --export does both where nsys is installed",
    )


def refuse_database(first: bytes, path: str) -> None:
    """Raise NotATrace for a database: only JSON can be copied event by event."""
    if is_database(first):
        raise database_refused(path)


def database_refused(path: str) -> NotATrace:
    """Return the error for a database where a copy of a trace is wanted."""
    return NotATrace(
        "it is an SQLite export of Nsight Systems, and only traces of torch.profiler can be copied",
        where=path,
        remedy="look at the .nsys-rep file with Nsight Systems; gpudiag explain GD907 says how to "
        "remove credentials",
    )


def is_rocprof(head: bytes) -> bool:
    """Return whether a file that starts like this is JSON of rocprofv3."""
    return _ROCPROF.match(head) is not None


def is_pftrace(head: bytes) -> bool:
    """Return whether a file that starts like this is a list of Perfetto's packets."""
    if head.lstrip()[:1] in _OPENINGS or _BINARY.search(head) is None:
        return False
    at = seen = 0
    while at < len(head) and seen < _PACKETS_SEEN:
        found = _PACKET.match(head, at)
        if found is None:
            return False
        length = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(found[1]))
        at, seen = found.end() + length, seen + 1
    return seen > 0


def refuse_uncopied(first: bytes, path: str) -> None:
    """Raise NotATrace for a file of another recorder, where events of torch.profiler's JSON are copied one by
    one."""
    refuse_database(first, path)
    if is_rocprof(first):
        raise NotATrace(
            "it is JSON of rocprofv3, and only traces of torch.profiler can be copied event by event",
            where=path,
            remedy="record with rocprofv3 --output-format pftrace as well, and open that with Perfetto",
        )
    if is_pftrace(first):
        raise NotATrace(
            "it is a binary trace of Perfetto, and only JSON can be copied event by event",
            where=path,
            remedy="open it in Perfetto as it is",
        )


DUMP_HEAD_BYTES: Final = 4 << 10

# torch appends the rank to the prefix that the user chooses, and nothing after it. TensorBoard numbers its
# event files, too.
_DUMP_NAME: Final = lazy_re(r"(?!.*\.tfevents\.).*?(?P<rank>\d{1,9})(\.(json|pickle|pkl))?", re.DOTALL)
_DUMP_START: Final = lazy_re(rb"\x80[\x02-\x05]|\s*\{", re.DOTALL)
# Of all versions one is there: torch writes them first, or JSON sorts them before long ones.
_DUMP_FIELDS: Final = lazy_re(rb"comm_lib_version|nccl_version|pg_config|collective_seq_id")


def rank_in(name: str) -> int | None:
    """Return the rank whose dump a file of this name may be."""
    found = _DUMP_NAME.fullmatch(name)
    return int(found["rank"]) if found else None


# `rank0_memory_snapshot.pickle` of torchtitan, `oom_rank-1_snapshot.pickle` of Megatron.
_NAMED_RANK: Final = lazy_re(r"(?:^|[^a-z])rank[-_ ]?(\d{1,6})(?!\d)", re.IGNORECASE)


def named_rank(worker: str) -> int | None:
    """Return the rank that the name of a memory snapshot says; None if it says none. The file says none."""
    found = _NAMED_RANK.search(worker)
    return int(found[1]) if found else None


def is_dump(head: bytes) -> bool:
    """Return whether a file that starts like this is a dump."""
    return _DUMP_START.match(head) is not None and _DUMP_FIELDS.search(head) is not None


NOW: Final = "now"
"""File of a rank: its RankSteps."""
MADE: Final = "recorded"
"""File of a rank: the recordings that its clock has made, each a ClockRecording."""
ORDER: Final = "order"
"""File of a run: its last RecordingOrder, the step from which it holds (`at`), the first step of the rank
that gave it (`first`), and when it was given."""

FOLDER: Final = os.path.join("gpudiag", "clock")

EVENT_FILE: Final = ".tfevents."
"""Part of the names of event files."""


def clock_of(path: str) -> str:
    """Return the folder of the clocks that wrote the file of this path; "" if it is another file."""
    place, name = os.path.split(path)
    if name == ORDER and place.endswith(os.sep + FOLDER):
        return place
    clock, rank = os.path.split(place)
    is_rank = rank.startswith("rank-") and rank[5:].isdecimal() and clock.endswith(os.sep + FOLDER)
    return clock if is_rank and (EVENT_FILE in name or name in (NOW, MADE)) else ""


_PAGE: Final = lazy_re(
    rb"\s*(?:<!DOCTYPE html>\s*)?<html\b(?s:.{0,2000}?)add_local_files(?s:.{0,1000}?)"
    rb"local_files\s*=\s*\[\s*\{[^{}\[\]]{0,1000}?\"base64\"\s*:\s*\"",
    re.IGNORECASE,
)
_REMEDY: Final = "name a file that torch.cuda.memory._dump_snapshot wrote"


def is_memory_viz_page(head: bytes) -> bool:
    """Return whether a file that starts like this is a page of torch.cuda._memory_viz."""
    return _PAGE.match(head) is not None


def pickle_of_page(data: bytes, path: str) -> bytes:
    """Return the pickle in a page for which is_memory_viz_page is true. Raises NotATrace."""
    begins = _PAGE.match(data)
    start = begins.end() if begins is not None else 0
    end = data.find(b'"', start)
    if end < 0:
        raise NotATrace(
            "the page ends in the middle of its snapshot",
            where=path,
            remedy="if it is still being written, try again later; otherwise save it again",
        )
    try:
        return base64.b64decode(memoryview(data)[start:end], validate=True)
    except binascii.Error:
        raise NotATrace("the snapshot in the page is damaged", where=path, remedy=_REMEDY) from None
