"""Find the files to diagnose below a log directory: traces, memory snapshots and memory timelines."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import zlib
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

import fsspec

from tb_gpudiag.errors import GpudiagError, Unreadable
from tb_gpudiag.trace.events import Kind
from tb_gpudiag.trace.kineto import is_trace
from tb_gpudiag.trace.memory_viz_page import is_memory_viz_page
from tb_gpudiag.trace.nsys import HEAD_BYTES as EXPORT_HEAD_BYTES
from tb_gpudiag.trace.nsys import is_export
from tb_gpudiag.trace.nsys_file import exported_path, is_report, report_refused
from tb_gpudiag.trace.snapshot_pickle import is_snapshot
from tb_gpudiag.trace.source import GZIP, GZIP_MAGIC, is_remote, modified_s, unreadable

_TRACE_NAME: Final = re.compile(
    r"(?P<worker>.*?)(?:\.(?P<span>[0-9]+))?\.pt\.trace\.json(?:\.gz)?", re.DOTALL
)
_SNAPSHOT_NAME: Final = re.compile(
    r"(?P<worker>.*?)(?:\.(?P<span>[0-9]+))?\.(?:pickle(?:\.gz)?|html)", re.DOTALL
)
# `export_memory_timeline` takes any name. No other files have these names.
_TIMELINE_NAME: Final = re.compile(
    r"(?P<worker>.*?)(?:\.(?P<span>[0-9]+))?(?:\.raw\.json\.gz|(?<=memory_timeline)\.json(?:\.gz)?)",
    re.DOTALL,
)
# `export_chrome_trace` takes any name, and other programs write JSON and pickles, too: the content decides.
# On a remote store, reading the first bytes of each takes too long: there, the name has to say what it is.
_ANY_JSON: Final = re.compile(r".*\.json(?:\.gz)?", re.DOTALL)
_ANY_DATABASE: Final = re.compile(r".*\.sqlite(?:\.gz)?", re.DOTALL)
_TELLING_NAMES: Final = {
    "snapshot": re.compile(r"snapshot|memory", re.IGNORECASE),
    "trace": re.compile(r"(?<![a-z])trace(?![a-z])", re.IGNORECASE),
}
_TELLING_DATABASE: Final = re.compile(r"nsys|nsight|report|profile|trace", re.IGNORECASE)
# Kineto's keys come first. Events follow metadata, if another program has written the file again.
_HEAD_BYTES: Final = 4 << 10
# Each version of a file is opened once. With more files than this, they are opened again on every scan.
_FILES_REMEMBERED: Final = 1 << 18
_JSON_NAME: Final = re.compile(
    r"(?P<worker>.*?)(?:\.(?P<span>[0-9]+))?(?:\.json|\.sqlite)?(?:\.gz)?", re.DOTALL
)
# TensorBoard's own pattern for a URL in --logdir_spec.
_SPEC_URL: Final = re.compile(r"[a-zA-Z][0-9a-zA-Z.]*://")
_SPEC_DRIVE: Final = re.compile(r"[a-zA-Z]:\\")
_KERNEL_FOLDERS: Final = ("/proc", "/sys", "/dev")
# A log directory may link to folders of other users. A home directory has tens of thousands of folders.
_MOST_LINKED_FOLDERS: Final = 10_000
# Object stores' keys for the version of a file's content. Whichever is there changes with the content.
_VERSION_KEYS: Final = ("ETag", "etag", "md5Hash", "generation", "content_md5", "created", "mtime")


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
    kind: Kind = "trace"  # by its name; only reading it makes sure


@dataclass
class Found:
    """Trace files, sorted by run, worker and span, and the folders and files that could not be read."""

    files: list[TraceFile] = field(default_factory=list)
    problems: list[GpudiagError] = field(default_factory=list)


def find_traces(root: str) -> Found:
    """Find the files to diagnose below a directory. If `root` is a file, return that file, whatever its name.

    Traces are named `*.pt.trace.json`, memory timelines `*.raw.json.gz` or `*memory_timeline.json`, memory
    snapshots `*.pickle`; each may end in `.gz`. Pages of torch.cuda._memory_viz end in `.html`. Other
    programs write pickles and pages, too, and traces may have any name ending in `.json`: on a local disk,
    those that start like a snapshot, such a page or a trace of PyTorch are returned, on a remote store those
    with `snapshot` or `memory`, or with the word `trace` in their name, and no pages.
    The same goes for `*.sqlite`, which `nsys export` writes. A report that was not exported is a problem.

    `root` is a local path or an fsspec URL. Links are followed. A folder is visited once, under its own path
    if that is below `root`. Raises nothing: whatever cannot be listed is in `problems`.
    """
    found = Found()
    if is_remote(root):
        _find_remote(root, found)
    else:
        _find_local(os.path.expanduser(root), found)
    found.files.sort(key=lambda f: (_natural(f.run), _natural(f.worker), int(f.span or 0), f.path))
    return found


def parse_logdir_spec(spec: str) -> list[tuple[str, str]]:
    """Parse TensorBoard's `--logdir_spec` into (name, path) pairs; the name is empty if the spec gives none.

    Commas separate `name:path` entries. `/a:b` is a path with a colon, `C:\\logs` a path with a drive and
    `gs://bucket` a URL. If a path comes twice, the last entry wins. Empty entries are skipped.
    """
    named: dict[str, str] = {}
    for entry in spec.split(","):
        if not entry:
            continue
        name, path = "", entry
        drive = os.path.splitdrive(entry)[0] or _SPEC_DRIVE.match(entry)
        if ":" in entry and entry[0] != "/" and not drive and not _SPEC_URL.match(entry):
            name, _, path = entry.partition(":")
        if not _SPEC_URL.match(path) and not _SPEC_DRIVE.match(path):
            path = os.path.realpath(os.path.expanduser(path))
        named[path] = name
    return [(name, path) for path, name in named.items()]


def _find_local(root: str, found: Found) -> None:
    try:
        status = os.stat(root)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        found.problems.append(unreadable(error, root))
        return
    if stat.S_ISDIR(status.st_mode):
        _LocalSearch(found).below(root)
    else:
        found.files.append(_local_file(root, ".", _content(status)))


class _LocalSearch:
    """Breadth-first search below a folder. It visits each folder and file once.

    It follows links last, so that a folder or file that is below the root is found under its own path. It
    does not follow a link to a folder above the root, which would lead to the whole disk, and does not enter
    file systems of the kernel.
    """

    def __init__(self, found: Found) -> None:
        self._found = found
        self._above: frozenset[tuple[int, int]] = frozenset()
        self._kernel = _kernel_devices()
        self._linked = 0  # folders visited through links
        self._seen: set[tuple[int, int]] = set()
        self._folders: deque[tuple[str, str]] = deque()  # path, run
        self._linked_folders: deque[tuple[str, str]] = deque()
        self._linked_files: list[tuple[str, str]] = []

    def below(self, root: str) -> None:
        """Add the trace files below the folder, and a problem for each folder or file that cannot be read."""
        self._folders.append((root, "."))
        self._above = _ancestors(root)
        through_link = False
        while self._folders or self._linked_folders:
            through_link |= not self._folders
            folder, run = (self._folders or self._linked_folders).popleft()
            self._linked += through_link
            if self._linked > _MOST_LINKED_FOLDERS:
                self._stop_at(folder)
                break
            for entry in self._listed(folder):
                try:
                    self._visit(entry, run)
                except OSError as error:
                    self._found.problems.append(unreadable(error, entry.path))
        for path, run in self._linked_files:
            try:
                self._take(path, run)
            except OSError as error:
                self._found.problems.append(unreadable(error, path))

    def _listed(self, folder: str) -> list[os.DirEntry[str]]:
        """List the folder by name; nothing if it was visited before or cannot be listed."""
        try:
            status = os.stat(folder)
            if not self._is_new(status) or status.st_dev in self._kernel:
                return []
            if (status.st_dev, status.st_ino) in self._above:
                self._found.problems.append(
                    Unreadable(
                        "it is a link to a folder that contains the log directory, and was not followed",
                        where=folder,
                        remedy="link to the folders that have traces",
                    )
                )
                return []
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self._found.problems.append(unreadable(error, folder))
            return []

    def _stop_at(self, folder: str) -> None:
        self._found.problems.append(
            Unreadable(
                f"links in the log directory lead to more than {_MOST_LINKED_FOLDERS:,} folders: "
                "this one and the rest were not searched",
                where=folder,
                remedy="link to the folders that have traces",
            )
        )

    def _visit(self, entry: os.DirEntry[str], run: str) -> None:
        if entry.is_dir():
            below = entry.name if run == "." else f"{run}/{entry.name}"
            (self._linked_folders if entry.is_symlink() else self._folders).append((entry.path, below))
        elif is_report(entry.name):
            if not os.path.exists(exported_path(entry.path)):
                self._found.problems.append(report_refused(entry.path))
        elif _kind(entry.name) is None and not _may_be_trace(entry.name):
            return
        elif entry.is_symlink():
            self._linked_files.append((entry.path, run))
        else:
            self._take(entry.path, run)

    def _take(self, path: str, run: str) -> None:
        """Add the file if it is a trace, a memory snapshot or a memory timeline."""
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait forever
            return
        is_new = self._is_new(status)
        if not is_new and os.path.islink(path):  # a second hard link counts, a symbolic one does not
            return
        kind = _kind(os.path.basename(path))
        if kind in _CERTAIN or _begins_like(kind or "trace", path, _content(status)):
            self._found.files.append(_local_file(path, run, _content(status)))

    def _is_new(self, status: os.stat_result) -> bool:
        key = (status.st_dev, status.st_ino)
        new = key not in self._seen
        self._seen.add(key)
        return new


def _ancestors(root: str) -> frozenset[tuple[int, int]]:
    """Return device and inode of each folder above `root`."""
    above = set()
    folder = os.path.realpath(root)
    while (parent := os.path.dirname(folder)) != folder:
        folder = parent
        with contextlib.suppress(OSError):
            status = os.stat(folder)
            above.add((status.st_dev, status.st_ino))
    return frozenset(above)


def _kernel_devices() -> frozenset[int]:
    """Return the devices of file systems that the kernel makes up: they are endless, and have no traces."""
    devices = set()
    for folder in _KERNEL_FOLDERS:
        with contextlib.suppress(OSError):
            devices.add(os.stat(folder).st_dev)
    with contextlib.suppress(OSError):
        devices.discard(os.stat("/").st_dev)
    return frozenset(devices)


@lru_cache(_FILES_REMEMBERED)
def _begins_like(kind: Kind, path: str, _content: tuple[object, ...]) -> bool:
    """Return whether this version of the file starts like a trace or a memory snapshot."""
    size = EXPORT_HEAD_BYTES if _ANY_DATABASE.fullmatch(path) else _HEAD_BYTES
    with open(path, "rb") as file:
        head = file.read(size)
    if head.startswith(GZIP_MAGIC):
        try:
            head = zlib.decompressobj(GZIP).decompress(head, size)
        except zlib.error:
            return False
    if kind == "snapshot":
        return is_snapshot(head) or is_memory_viz_page(head)
    return is_trace(head) or is_export(head)


@lru_cache(_FILES_REMEMBERED)
def _local_file(path: str, run: str, content: _Content) -> TraceFile:
    """Describe this version of a file. The same version is the same object: scans are repeated."""
    return _trace_file(path, run, os.path.basename(path), content.size_bytes, content.modified_ns, content)


class _Content(NamedTuple):
    """What differs between versions of a file."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int


def _content(status: os.stat_result) -> _Content:
    return _Content(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _find_remote(root: str, found: Found) -> None:
    try:
        system, inner = fsspec.core.url_to_fs(root)
        listed: dict[str, dict[str, Any]] = system.find(inner, detail=True)
        if not listed and not system.exists(inner):
            raise FileNotFoundError(root)
    except Exception as error:  # fsspec back ends raise anything
        found.problems.append(unreadable(error, root))
        return
    base = inner.rstrip("/")
    for path, info in listed.items():
        folder, _, name = path.rpartition("/")
        named = path.rstrip("/") == base
        kind = _kind(name)
        if named or kind in _CERTAIN or _tells(kind, name):
            run = "." if named else folder[len(base) :].strip("/") or "."
            size = int(info.get("size") or 0)
            modified_ns = int(modified_s(info) * 1e9)
            content = (size, modified_ns, *(str(info.get(key)) for key in _VERSION_KEYS))
            url = system.unstrip_protocol(path)
            found.files.append(_trace_file(url, run, name, size, modified_ns, content))


def _tells(kind: Kind | None, name: str) -> bool:
    """Return whether the name of a file on a remote store says that it is a snapshot or a trace."""
    if _ANY_DATABASE.fullmatch(name):
        return _TELLING_DATABASE.search(name) is not None
    if kind is None and not _ANY_JSON.fullmatch(name):
        return False
    return not name.endswith(".html") and _TELLING_NAMES[kind or "trace"].search(name) is not None


def _trace_file(
    path: str, run: str, name: str, size_bytes: int, modified_ns: int, content: tuple[object, ...]
) -> TraceFile:
    kind = _kind(name)
    match = (_NAMES[kind] if kind else _JSON_NAME).fullmatch(name)
    worker, span = (match["worker"], match["span"] or "") if match is not None else (name, "")
    identity = hashlib.blake2b(
        repr((path, tuple(content))).encode("utf-8", "surrogatepass"), digest_size=16
    ).hexdigest()
    return TraceFile(
        path, _text(run), _text(worker), span, size_bytes, modified_ns, identity, kind or "trace"
    )


_NAMES: Final[dict[Kind, re.Pattern[str]]] = {
    "trace": _TRACE_NAME,
    "snapshot": _SNAPSHOT_NAME,
    "memory_timeline": _TIMELINE_NAME,
}


_CERTAIN: Final[frozenset[Kind]] = frozenset({"trace", "memory_timeline"})
"""Kinds of which no other program's files have the names."""


@lru_cache(_FILES_REMEMBERED)
def _kind(name: str) -> Kind | None:
    """Return what a file in a log directory is by its name; None if the name does not say."""
    return next((kind for kind, pattern in _NAMES.items() if pattern.fullmatch(name)), None)


def _may_be_trace(name: str) -> bool:
    """Return whether a file with this name may be a trace: its content decides."""
    return (_ANY_JSON.fullmatch(name) or _ANY_DATABASE.fullmatch(name)) is not None


def _text(name: str) -> str:
    """Make a file name that can be shown and sent: bytes that are not Unicode become question marks."""
    return name.encode("utf-8", "replace").decode()


@lru_cache(_FILES_REMEMBERED)
def _natural(text: str) -> list[tuple[int, int, str]]:
    """Sort key that compares the numbers in names as numbers: rank2 comes before rank10."""
    parts = re.split(r"([0-9]+)", text)  # every second part is a number
    return [(0, int(part), "") if i % 2 else (1, 0, part) for i, part in enumerate(parts)]
