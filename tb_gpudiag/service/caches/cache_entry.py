"""One analyzed trace as one file of a cache: the report as it is sent to the page, and the arrays of the
timeline.

    head      magic, length and checksum of the header, length of the file
    header    JSON: the summary, and where each section is, with its checksum and type
    sections  the report (a gzipped ReportState), then the arrays

Lengths and checksums detect damage by a crash, a full disk or a bad disk. Others may be able to write to the
directory of a cache, so a name in it may lead to a pipe, a device, a directory or somebody else's file.
"""

from __future__ import annotations

import json
import mmap
import os
import stat
import struct
import zlib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tb_gpudiag.errors import CorruptEntry
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.service.settings import MIB
from tb_gpudiag.vocabulary.patterns import lazy_re

WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

# Windows has none of these, and no owner and permissions of this kind: there, a user's profile is private.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_WAITING = getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_HAS_OWNERS = hasattr(os, "geteuid")


def open_file(path: Path, *, of_others: bool = False) -> IO[bytes]:
    """Open a regular file of this user for reading. Never waits for a writer.

    of_others: it may belong to another user, and others may write to it.

    Raises:
        CorruptEntry: there is something else.
        OSError: it cannot be opened, or does not exist.
    """
    flags = os.O_RDONLY | _NO_WAITING | _NO_LINK | _BINARY
    if not stat.S_ISREG(os.lstat(path).st_mode):  # opening a device may do something
        raise CorruptEntry.at(path)
    file = os.fdopen(os.open(path, flags), "rb")
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or not (of_others or _is_own(status)):
        file.close()
        raise CorruptEntry.at(path)
    return file


def create_private(path: Path) -> int:
    """Create a file that only this user can read and write, and return its descriptor. Raises OSError: it
    exists or cannot be created."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | _BINARY, 0o600)


def why_not_private(directory: Path) -> str:
    """Return why others may have written to this directory; empty if they cannot have. Raises OSError: the
    directory does not exist or cannot be examined."""
    status = os.stat(directory)
    if not stat.S_ISDIR(status.st_mode):
        return f"{directory} is not a directory"
    if not _HAS_OWNERS:
        return ""
    if status.st_uid != os.geteuid():
        return f"{directory} belongs to another user"
    if status.st_mode & WRITABLE_BY_OTHERS:
        return f"other users can write to {directory} (run: chmod go-w {directory})"
    return ""


def _is_own(status: os.stat_result) -> bool:
    if not _HAS_OWNERS:
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & WRITABLE_BY_OTHERS


MAGIC = b"gpudiag2"
HEAD = struct.Struct("<8sIIQ")

# Far larger than any real header, report or entry: whatever is longer was not written by us.
HEADER_BYTES = 1 * MIB
REPORT_BYTES = 256 * MIB
ENTRY_BYTES = 4096 * MIB

# Arrays begin at multiples of this, which is fast to read.
ALIGNMENT = 64

# Numbers and booleans only: objects would be unpickled.
_TYPE = lazy_re(r"[<|][biuf][1248]")

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class EntrySection:
    """A part of the file."""

    offset: int
    size_bytes: int
    checksum: int


@dataclass(frozen=True)
class EntryArray:
    """An array in the file."""

    section: EntrySection
    type: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class CacheEntry:
    """An entry. `summary` is what the list of traces shows."""

    path: Path
    size_bytes: int
    report: EntrySection
    columns: Mapping[str, EntryArray]
    summary: Mapping[str, str]

    def report_gz(self) -> bytes:
        """Read the ReportState, as gzipped JSON.

        Raises:
            CorruptEntry: the file is missing or has changed.
            OSError: it cannot be read now.
        """
        with open_file(self.path) as file:
            return _read(file, self.report, self.path)

    def content(self, name: str) -> bytes:
        """Read one array's bytes.

        Raises:
            CorruptEntry: the file is missing or has changed, or has no such array.
            OSError: it cannot be read now.
        """
        column = self.columns.get(name)
        if column is None:
            raise CorruptEntry.at(self.path)
        with open_file(self.path) as file:
            return _read(file, column.section, self.path)

    def arrays(self) -> Arrays:
        """Map the arrays of the timeline into memory, read-only. They keep one file open.

        If somebody truncates the file later, reading the arrays kills the process (SIGBUS). So only child
        processes may call this.

        Raises:
            CorruptEntry: the file is missing or has changed.
            OSError: it cannot be read now.
        """
        with open_file(self.path) as file:
            if os.fstat(file.fileno()).st_size != self.size_bytes:
                raise CorruptEntry.at(self.path)
            mapped = memoryview(mmap.mmap(file.fileno(), self.size_bytes, access=mmap.ACCESS_READ))
        arrays: Arrays = {}
        for name, column in self.columns.items():
            place = column.section
            content = mapped[place.offset : place.offset + place.size_bytes]
            if zlib.crc32(content) != place.checksum:
                raise CorruptEntry.at(self.path)
            arrays[name] = np.frombuffer(content, column.type).reshape(column.shape)
        return arrays


@dataclass(frozen=True)
class Unpacked:
    """The content of an entry that was read completely and is not damaged."""

    report_gz: bytes
    arrays: Arrays
    summary: Mapping[str, str]

    def is_of(self, key: str, fingerprint: str) -> bool:
        """Return whether the entry was written for the trace with this fingerprint: see claims.py."""
        return bool(fingerprint) and (self.summary.get("key"), self.summary.get("trace")) == (
            key,
            fingerprint,
        )


def write_entry(
    path: Path, report_gz: bytes, arrays: Mapping[str, npt.NDArray[Any]], summary: Mapping[str, str]
) -> None:
    """Create the file and write the entry. Raises OSError: the disk is full, permission is denied, or the
    file exists."""
    with os.fdopen(create_private(path), "wb") as file:
        write_to(file, report_gz, arrays, summary)


def write_to(
    file: IO[bytes], report_gz: bytes, arrays: Mapping[str, npt.NDArray[Any]], summary: Mapping[str, str]
) -> None:
    """Write the entry. Raises OSError."""
    contents = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    report = EntrySection(0, len(report_gz), zlib.crc32(report_gz))
    columns = {}
    end = report.size_bytes
    for name, array in contents.items():
        offset = _aligned(end)
        section = EntrySection(offset, array.nbytes, zlib.crc32(array.data.cast("B") if array.size else b""))
        columns[name] = EntryArray(section, array.dtype.str, array.shape)
        end = offset + array.nbytes
    header = _header(report, columns, summary)
    begin = _aligned(HEAD.size + len(header))
    file.write(HEAD.pack(MAGIC, len(header), zlib.crc32(header), begin + end))
    file.write(header)
    _fill(file, begin)
    file.write(report_gz)
    for name, array in contents.items():
        _fill(file, begin + columns[name].section.offset)
        file.write(array.data if array.size else b"")


def read_entry(path: Path) -> CacheEntry | None:
    """Read the header of the entry in this file; return None if there is no such file.

    Raises:
        CorruptEntry: `write_entry` did not write the file, or it has changed.
        OSError: it cannot be read now.
    """
    try:
        with open_file(path) as file:
            return _read_header(file, path)
    except FileNotFoundError:
        return None


def entry_at(path: str) -> CacheEntry | None:
    """Return the entry in this file; None if it is gone, damaged or cannot be read."""
    try:
        return read_entry(Path(path))
    except (CorruptEntry, OSError):
        return None


def unpack(file: IO[bytes], path: Path, *, summary_only: bool = False) -> Unpacked:
    """Read a whole entry from a file that others can change.

    summary_only: leave out the report and the arrays.

    Raises:
        CorruptEntry: `write_to` did not write the file, or it has changed.
        OSError: it cannot be read.
    """
    entry = _read_header(file, path)
    if summary_only:
        return Unpacked(b"", {}, entry.summary)
    if entry.size_bytes > ENTRY_BYTES:
        raise CorruptEntry.at(path)
    arrays = {
        name: np.frombuffer(_read(file, column.section, path, ENTRY_BYTES), column.type).reshape(column.shape)
        for name, column in entry.columns.items()
    }
    return Unpacked(_read(file, entry.report, path), arrays, entry.summary)


def _read_header(file: IO[bytes], path: Path) -> CacheEntry:
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        raise CorruptEntry.at(path)
    magic, length, checksum, size_bytes = HEAD.unpack(head)
    if magic != MAGIC or length > HEADER_BYTES or os.fstat(file.fileno()).st_size != size_bytes:
        raise CorruptEntry.at(path)
    header = file.read(length)
    if len(header) != length or zlib.crc32(header) != checksum:
        raise CorruptEntry.at(path)
    try:
        return _parsed(path, size_bytes, header)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptEntry.at(path) from error


def _header(report: EntrySection, columns: Mapping[str, EntryArray], summary: Mapping[str, str]) -> bytes:
    header = {
        "summary": dict(summary),
        "report": [report.offset, report.size_bytes, report.checksum],
        "columns": {
            name: [c.section.offset, c.section.size_bytes, c.section.checksum, c.type, list(c.shape)]
            for name, c in columns.items()
        },
    }
    return json.dumps(header).encode("ascii")


def _parsed(path: Path, size_bytes: int, header: bytes) -> CacheEntry:
    """Return the entry of a header. Offsets in the header count from its end."""
    data = json.loads(header)
    begin = _aligned(HEAD.size + len(header))
    columns = {}
    for name, (offset, length, checksum, kind, shape) in data["columns"].items():
        shape = tuple(map(int, shape))
        if not _TYPE.fullmatch(kind) or min(shape) < 0 or prod(shape) * np.dtype(kind).itemsize != length:
            raise ValueError(name)
        np.broadcast_to(np.zeros((), kind), shape)  # a shape that no array can have is refused here
        columns[str(name)] = EntryArray(_section(begin + offset, length, checksum), kind, shape)
    report = _section(begin + data["report"][0], *data["report"][1:])
    summary = {str(name): str(value) for name, value in data["summary"].items()}
    sections = [report, *(column.section for column in columns.values())]
    if any(s.offset < begin or s.size_bytes < 0 or s.offset + s.size_bytes > size_bytes for s in sections):
        raise ValueError("a section is outside the file")
    if sum(section.size_bytes for section in sections) > size_bytes - begin:
        raise ValueError("sections overlap")  # read one by one, they take more memory than the file
    return CacheEntry(path, size_bytes, report, columns, summary)


def _section(offset: int, size_bytes: int, checksum: int) -> EntrySection:
    return EntrySection(int(offset), int(size_bytes), int(checksum))


def _read(file: IO[bytes], section: EntrySection, path: Path, most_bytes: int = REPORT_BYTES) -> bytes:
    file.seek(section.offset)
    content = file.read(min(section.size_bytes, most_bytes))
    if len(content) != section.size_bytes or zlib.crc32(content) != section.checksum:
        raise CorruptEntry.at(path)
    return content


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _fill(file: IO[bytes], offset: int) -> None:
    """Write zeros up to this offset."""
    file.write(bytes(offset - file.tell()))
