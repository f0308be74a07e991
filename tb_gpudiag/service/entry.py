"""One analyzed trace on disk: a directory with the report as it is sent, and the arrays of the timeline.

    meta.json        {"files": {name: [bytes, crc32]}, "summary": {...}}
    report.json.gz   a ReportState
    <array>.npy      the timeline

meta.json has the length and checksum of each file, to detect damage by a crash, a full disk or a bad disk.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_gpudiag.service.settings import MIB

REPORT = "report.json.gz"
META = "meta.json"

# Far above any real one: a longer meta.json was not written by us.
META_BYTES = 1 * MIB

CHUNK_BYTES = 1 * MIB

Arrays = dict[str, npt.NDArray[Any]]


class CorruptEntry(Exception):
    """A file of an entry is missing or has changed since it was written."""


@dataclass(frozen=True)
class Entry:
    """An entry. `sizes` has (bytes, crc32) by file name, `summary` what the list of traces shows."""

    directory: Path
    sizes: Mapping[str, tuple[int, int]]
    summary: Mapping[str, str]

    def report_gz(self) -> bytes:
        """Read the ReportState, as gzipped JSON.

        Raises:
            CorruptEntry: the file is missing or has changed.
            OSError: it cannot be read now.
        """
        self._check(REPORT)
        return (self.directory / REPORT).read_bytes()

    def arrays(self) -> Arrays:
        """Map the arrays of the timeline into memory, read-only.

        Raises:
            CorruptEntry: a file is missing or has changed.
            OSError: a file cannot be read now.
        """
        arrays: Arrays = {}
        for name in self.sizes:
            if name.endswith(".npy"):
                self._check(name)
                try:
                    array = np.load(self.directory / name, mmap_mode="r", allow_pickle=False)
                except ValueError as error:
                    raise CorruptEntry(name) from error
                arrays[name[: -len(".npy")]] = array
        return arrays

    def size_bytes(self) -> int:
        """Return the bytes of the entry, without its meta.json."""
        return sum(size_bytes for size_bytes, _ in self.sizes.values())

    def _check(self, name: str) -> None:
        try:
            found = _measure(self.directory / name)
        except FileNotFoundError as error:
            raise CorruptEntry(name) from error
        if found != self.sizes[name]:
            raise CorruptEntry(name)


def write_entry(
    directory: Path, report_gz: bytes, arrays: Mapping[str, npt.NDArray[Any]], summary: Mapping[str, str]
) -> None:
    """Create the directory and write the entry. meta.json comes last: without it, there is no entry.

    Raises:
        OSError: the disk is full, permission is denied, or the directory exists.
    """
    directory.mkdir(mode=0o700)
    (directory / REPORT).write_bytes(report_gz)
    for name, array in arrays.items():
        np.save(directory / f"{name}.npy", array, allow_pickle=False)
    sizes = {path.name: _measure(path) for path in sorted(directory.iterdir())}
    (directory / META).write_text(json.dumps({"files": sizes, "summary": dict(summary)}), encoding="utf-8")


def read_entry(directory: Path) -> Entry | None:
    """Read the entry in this directory, but not its large files; return None if the directory does not exist.

    Raises:
        CorruptEntry: the directory was not written by `write_entry`.
        OSError: it cannot be read now.
    """
    try:
        with open(directory / META, encoding="utf-8") as file:
            text = file.read(META_BYTES + 1)
        if len(text) > META_BYTES:
            raise CorruptEntry(META)
        meta = json.loads(text)
        sizes = {str(name): (int(size), int(checksum)) for name, (size, checksum) in meta["files"].items()}
        summary = {str(name): str(value) for name, value in meta["summary"].items()}
    except FileNotFoundError:
        if directory.exists():
            raise CorruptEntry(META) from None
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptEntry(META) from error
    if REPORT not in sizes or any(os.path.basename(name) != name for name in sizes):
        raise CorruptEntry(META)
    return Entry(directory, sizes, summary)


def _measure(path: Path) -> tuple[int, int]:
    size_bytes = checksum = 0
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            size_bytes += len(chunk)
            checksum = zlib.crc32(chunk, checksum)
    return size_bytes, checksum
