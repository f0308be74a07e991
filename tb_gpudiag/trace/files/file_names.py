"""Describe a file of a log directory by its name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.patterns import lazy_re

if TYPE_CHECKING:
    from tb_gpudiag.vocabulary.recorded import FileKind

_TRACE_NAME: Final = lazy_re(r"(?P<worker>.*?)(?:\.(?P<span>[0-9]+))?\.pt\.trace\.json(?:\.gz)?", re.DOTALL)
_SNAPSHOT_NAME: Final = lazy_re(
    r"(?P<worker>.*?)(?:\.(?P<span>[0-9]+))?\.(?:pickle(?:\.gz)?|html)", re.DOTALL
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
