"""Find trace files below a local folder."""

from __future__ import annotations

import contextlib
import os
import stat
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from tb_gpudiag.errors import LinksNotFollowed, TraceError, Unreadable
from tb_gpudiag.trace.files.file_names import (
    ANY_DATABASE,
    ANY_PFTRACE,
    CERTAIN,
    DUMP_HEAD_BYTES,
    EXPORT_HEAD_BYTES,
    FILES_REMEMBERED,
    MAGIC,
    Found,
    TraceFile,
    clock_of,
    exported_path,
    folder_file,
    is_database,
    is_dump,
    is_export,
    is_memory_viz_page,
    is_pftrace,
    is_report,
    is_rocprof,
    is_snapshot,
    kind_of,
    may_be_trace,
    named_rank,
    rank_in,
    report_refused,
    trace_file,
)
from tb_gpudiag.trace.files.opening import FOLLOW_LINKS, first_bytes, follows_links, is_below
from tb_gpudiag.trace.files.source import GZIP, GZIP_MAGIC, unreadable
from tb_gpudiag.vocabulary.recorded import FileKind

# Kineto's keys come first. Events follow metadata, if another program has written the file again.
_HEAD_BYTES: Final = 4 << 10
_KERNEL_FOLDERS: Final = ("/proc", "/sys", "/dev")
# A log directory may link to folders of other users. A home directory has tens of thousands of folders.
_MOST_LINKED_FOLDERS: Final = 10_000


def find_local(root: str, found: Found, also: Sequence[str], tell: Callable[[], None]) -> None:
    """Add the trace files below a folder, or the file itself. also: see find_traces. tell: called after each
    folder.
    """
    try:
        status = os.stat(root)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        found.problems.append(unreadable(error, root))
        return
    if stat.S_ISDIR(status.st_mode):
        inside = () if follows_links() else tuple(os.path.realpath(path) for path in (root, *also))
        _LocalSearch(found, inside, tell).below(root)
    else:
        found.files.append(_local_file(root, ".", _content(status), ""))


def is_recording(path: str) -> bool:
    """Return whether a local file is one that a search finds, or begins like one."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return False
        content, name = _content(status), os.path.basename(path)
        return (
            kind_of(name) in CERTAIN
            or is_database(first_bytes(path, len(MAGIC)))
            or any(_begins_like(kind, path, "", content) for kind in ("snapshot", "trace"))
            or _is_dump(path, "", content)
        )
    except (OSError, TraceError):
        return False


class _Place(NamedTuple):
    """A folder to search, or a link to a file. folder: the one that its files are opened below."""

    path: str
    run: str
    folder: str


class _LocalSearch:
    """Breadth-first search below a folder. It visits each folder and file once.

    It follows links last, so that a folder or file that is below the root is found under its own path. It
    follows a link that leads outside only if `inside` is empty, never to a folder above the root, which would
    lead to the whole disk, and does not enter file systems of the kernel.
    """

    def __init__(self, found: Found, inside: Sequence[str], tell: Callable[[], None]) -> None:
        self._found = found
        self._inside = inside
        self._tell = tell
        self._above: frozenset[tuple[int, int]] = frozenset()
        self._kernel = _kernel_devices()
        self._linked = 0  # folders visited through links
        self._left_out: list[str] = []  # links that lead outside
        self._seen: set[tuple[int, int]] = set()
        self._folders: deque[_Place] = deque()
        self._linked_folders: deque[_Place] = deque()
        self._linked_files: list[_Place] = []
        # Files that are listed together, by kind and folder: dumps of a flight recorder, step clocks.
        self._together: dict[tuple[FileKind, str], tuple[_Place, list[_Content]]] = {}

    def below(self, root: str) -> None:
        """Add the trace files below the folder, and a problem for each folder or file that cannot be read."""
        self._folders.append(_Place(root, ".", self._inside[0] if self._inside else ""))
        self._above = _ancestors(root)
        through_link = False
        while self._folders or self._linked_folders:
            through_link |= not self._folders
            place = (self._folders or self._linked_folders).popleft()
            self._linked += through_link
            if self._linked > _MOST_LINKED_FOLDERS:
                self._stop_at(place.path)
                break
            may_be_link = through_link or place.path == root
            for entry in self._listed(place.path, may_be_link=may_be_link):
                try:
                    self._visit(entry, place)
                except (OSError, TraceError) as error:
                    self._found.problems.append(unreadable(error, entry.path))
            self._tell()
        for place in self._linked_files:
            self._take_linked(place)
        self._found.folders += [
            _local_folder(path, _run_of(path, place), tuple(files), place.folder, kind)
            for (kind, path), (place, files) in self._together.items()
        ]
        self._tell_left_out()

    def _listed(self, folder: str, *, may_be_link: bool) -> list[os.DirEntry[str]]:
        """List the folder by name; nothing if it was visited before or cannot be listed."""
        try:
            status = os.stat(folder, follow_symlinks=may_be_link)
            if not stat.S_ISDIR(status.st_mode):  # it was replaced since its own folder was listed
                return []
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

    def _tell_left_out(self) -> None:
        if not self._left_out:
            return
        number = len(self._left_out)
        links = "1 link leads" if number == 1 else f"{number:,} links lead"
        self._found.problems.append(
            LinksNotFollowed(
                f"{links} outside the log directory and {'is' if number == 1 else 'are'} not followed",
                where=self._left_out[0],
                remedy=f"set {FOLLOW_LINKS}=1 to follow {'it' if number == 1 else 'them'}",
            )
        )

    def _visit(self, entry: os.DirEntry[str], place: _Place) -> None:
        if entry.is_symlink():
            self._visit_link(entry, place)
        elif entry.is_dir(follow_symlinks=False):
            self._folders.append(_Place(entry.path, _below(place.run, entry.name), place.folder))
        elif clock := clock_of(entry.path):
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                self._add_to("clock", clock, place, _content(status))
        elif _may_matter(entry.name):
            self._take(place, entry.path, entry.stat(follow_symlinks=False))

    def _visit_link(self, entry: os.DirEntry[str], place: _Place) -> None:
        is_folder = entry.is_dir()
        if not is_folder and not _may_matter(entry.name):
            return
        folder = ""
        if self._inside:
            target = os.path.realpath(entry.path)
            folder = next((inside for inside in self._inside if is_below(target, inside)), "")
            if not folder:
                self._left_out.append(entry.path)
                return
        if is_folder:
            self._linked_folders.append(_Place(entry.path, _below(place.run, entry.name), folder))
        else:
            self._linked_files.append(_Place(entry.path, place.run, folder))

    def _take_linked(self, place: _Place) -> None:
        """Add the file that a link leads to, unless it was found under its own path."""
        try:
            status = os.stat(place.path)
            if self._is_new(status):
                self._take(place, place.path, status)
        except (OSError, TraceError) as error:
            self._found.problems.append(unreadable(error, place.path))

    def _take(self, place: _Place, path: str, status: os.stat_result) -> None:
        """Add the file if it is a trace, a memory snapshot or a memory timeline."""
        name, content = os.path.basename(path), _content(status)
        if is_report(name):
            if not os.path.exists(exported_path(path)):
                self._found.problems.append(report_refused(path))
            return
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait forever
            return
        self._is_new(status)
        kind = kind_of(name)
        has_name = kind is not None or may_be_trace(name)
        is_empty = not status.st_size and kind == "snapshot" and named_rank(name) is not None
        if (
            kind in CERTAIN
            or is_empty
            or (has_name and _begins_like(kind or "trace", path, place.folder, content))
        ):
            self._found.files.append(_local_file(path, place.run, content, place.folder))
        elif _is_dump(path, place.folder, content):
            self._add_to("hang", os.path.dirname(path), place, content)

    def _add_to(self, kind: FileKind, folder: str, place: _Place, content: _Content) -> None:
        self._together.setdefault((kind, folder), (place, []))[1].append(content)

    def _is_new(self, status: os.stat_result) -> bool:
        key = (status.st_dev, status.st_ino)
        new = key not in self._seen
        self._seen.add(key)
        return new


def _below(run: str, name: str) -> str:
    return name if run == "." else f"{run}/{name}"


def _run_of(path: str, place: _Place) -> str:
    """Return the run of a folder that is a place or above it."""
    run = place.run
    for _ in range(place.path.count(os.sep) - path.count(os.sep)):
        run = run.rpartition("/")[0] or "."
    return run


def _may_matter(name: str) -> bool:
    return kind_of(name) is not None or may_be_trace(name) or is_report(name) or rank_in(name) is not None


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


@lru_cache(FILES_REMEMBERED)
def _begins_like(kind: FileKind, path: str, folder: str, _content: tuple[object, ...]) -> bool:
    """Return whether this version of the file starts like a trace or a memory snapshot."""
    size = EXPORT_HEAD_BYTES if ANY_DATABASE.fullmatch(path) else _HEAD_BYTES
    head = first_bytes(path, size, folder)
    if head.startswith(GZIP_MAGIC):
        try:
            head = zlib.decompressobj(GZIP).decompress(head, size)
        except zlib.error:
            return False
    if kind == "snapshot":
        return is_snapshot(head) or is_memory_viz_page(head)
    if ANY_PFTRACE.fullmatch(path):
        return is_pftrace(head)
    from tb_gpudiag.trace.kineto.kineto import is_trace  # names of torch's own files decide without it

    return is_trace(head) or is_export(head) or is_rocprof(head)


@lru_cache(FILES_REMEMBERED)
def _is_dump(path: str, folder: str, _content: _Content) -> bool:
    """Return whether this version of the file is a rank's dump. Its name is no reason to complain of it."""
    if rank_in(os.path.basename(path)) is None:
        return False
    with contextlib.suppress(OSError, TraceError):
        return is_dump(first_bytes(path, DUMP_HEAD_BYTES, folder))
    return False


@lru_cache(FILES_REMEMBERED)
def _local_folder(path: str, run: str, files: tuple[_Content, ...], folder: str, kind: FileKind) -> TraceFile:
    """Describe these versions of files, as _local_file does."""
    return folder_file(path, run, files, folder, kind)


@lru_cache(FILES_REMEMBERED)
def _local_file(path: str, run: str, content: _Content, folder: str) -> TraceFile:
    """Describe this version of a file. The same version is the same object: scans are repeated."""
    return trace_file(path, run, os.path.basename(path), content, folder)


class _Content(NamedTuple):
    """The marks of one version of a file."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int


def _content(status: os.stat_result) -> _Content:
    return _Content(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
