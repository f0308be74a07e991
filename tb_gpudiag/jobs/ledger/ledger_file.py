"""Ledgers: files with a line of JSON per fix, which a team shares. Several processes may append at once, and
what a line says is untrusted."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any, Final

from tb_gpudiag.errors import Unreadable, UsageError
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.rules.every_rule import find_any_rule
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.trace.files.source import is_remote
from tb_gpudiag.wording.format import one_line

VERSION: Final = 1

# An entry has about 500 bytes: these are some thirty thousand, more than any team makes.
MOST_BYTES: Final = 16 << 20
_LONGEST_LINE: Final = 4096
_LONGEST_NAME: Final = 200
_KEY: Final = "gpudiag_ledger"
_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,64}")

JUDGED: Final = ("INSIDE", "BELOW", "ABOVE")
"""Promises of which somebody can tell whether they were right."""

_REMEDY: Final = "name a file that `gpudiag verify --ledger` made, or a new one"


@dataclass(frozen=True)
class LedgerEntry:
    """A fix that was made: a row of a Comparison. Times are µs per step."""

    rule: str
    place: str
    base: str  # ids of the recordings
    candidate: str
    base_name: str
    candidate_name: str
    became: str
    promise: str
    low_us: float
    high_us: float
    real_us: float
    real_low_us: float
    real_high_us: float
    others_us: float
    step_us: float  # mean step of the base
    time_s: float  # Unix time of the line


@dataclass(frozen=True)
class LedgerEntries:
    """The entries of a ledger, each fix once. unreadable: lines that are no entry. cut: it has more lines
    than are read."""

    entries: list[LedgerEntry]
    unreadable: int = 0
    cut: bool = False


def entries_of(comparison: pb.Comparison) -> list[LedgerEntry]:
    """Return an entry for each fix that was made and that promised time."""
    return [
        LedgerEntry(
            rule=row.rule,
            place=row.place,
            base=comparison.base_id,
            candidate=comparison.candidate_id,
            base_name=one_line(comparison.base, _LONGEST_NAME),
            candidate_name=one_line(comparison.candidate, _LONGEST_NAME),
            became=pb.Verified.Became.Name(row.became),
            promise=pb.Verified.Promise.Name(row.promise),
            low_us=row.low_us,
            high_us=row.high_us,
            real_us=row.real_us,
            real_low_us=row.real_low_us,
            real_high_us=row.real_high_us,
            others_us=row.others_us,
            step_us=comparison.mean_step_us.base,
            time_s=time.time(),
        )
        for row in comparison.verified
        if row.promise != pb.Verified.NONE
    ]


def append(path: str, entries: Sequence[LedgerEntry]) -> None:
    """Append a line for each entry. The file is created if it is missing.

    Raises:
        UsageError: it has something else than a ledger in it, or is in a remote store.
        Unreadable: it cannot be written. It still has whole lines only.
    """
    if is_remote(path):
        raise UsageError("a ledger is a file on a disk", where=path, remedy=_REMEDY)
    lines = [json.dumps({_KEY: VERSION, **asdict(entry)}) for entry in entries]
    content = "".join(f"{line}\n" for line in lines).encode("ascii")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            _append(descriptor, content, path)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Unreadable(f"cannot be written: {error.strerror or error}", where=path) from error


def _append(descriptor: int, content: bytes, path: str) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise UsageError("this is not a regular file", where=path, remedy=_REMEDY)
    with _locked(descriptor):
        size = os.fstat(descriptor).st_size
        with open(descriptor, "rb", closefd=False) as file:
            if size and _KEY.encode() not in file.readline(_LONGEST_LINE):
                raise UsageError(
                    "this file is not a ledger, so nothing is added to it", where=path, remedy=_REMEDY
                )
            file.seek(max(0, size - 1))
            torn = size and file.read(1) != b"\n"  # by a process that was killed: begin a new line
        # In one call, so that lines of two processes do not mix where there are no locks.
        if os.write(descriptor, b"\n" * bool(torn) + content) < len(content):
            os.ftruncate(descriptor, size)
            raise OSError("the disk is full")


@contextlib.contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    """Keep other processes from appending, where the file system has locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # released when the file is closed
    yield


def read_ledger(path: str) -> LedgerEntries:
    """Read a ledger. A line that is no entry is counted, and costs only itself.

    Raises:
        Unreadable: the file cannot be read.
        UsageError: it is no regular file, or in a remote store.
    """
    if is_remote(path):
        raise UsageError("a ledger is a file on a disk", where=path, remedy=_REMEDY)
    found: dict[tuple[str, ...], LedgerEntry] = {}
    unreadable = 0
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UsageError("this is not a regular file", where=path, remedy=_REMEDY)
        with open(path, "rb") as file:
            cut = os.fstat(file.fileno()).st_size > MOST_BYTES
            content = file.read(MOST_BYTES)
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror or error}", where=path) from error
    for line in content.splitlines():
        entry = _entry(line)
        if entry is None:
            unreadable += bool(line.strip())
        else:  # verified again: the last line counts
            found[entry.base, entry.candidate, entry.rule, entry.place] = entry
    return LedgerEntries(list(found.values()), unreadable, cut)


def _entry(line: bytes) -> LedgerEntry | None:
    """Return what a line says, or None if it is not an entry that this version writes."""
    if len(line) > _LONGEST_LINE:
        return None
    try:
        values = json.loads(line)
        if not isinstance(values, dict) or values.get(_KEY) != VERSION:
            return None
        read = {field.name: _value(values, field.name, field.type) for field in fields(LedgerEntry)}
        entry = LedgerEntry(**read)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    known = find_any_rule(entry.rule)
    sound = (
        known is not None
        and known.id == entry.rule
        and entry.promise in (*JUDGED, "CANNOT_TELL")
        and 0 <= entry.low_us <= entry.high_us
        and entry.high_us > 0
        and _ID.fullmatch(entry.base)
        and _ID.fullmatch(entry.candidate)
    )
    return entry if sound else None


def _value(values: dict[str, Any], name: str, kind: Any) -> Any:
    """Return a field. Raises KeyError, TypeError, ValueError and OverflowError."""
    value = values[name]
    if kind == "str":
        if not isinstance(value, str):
            raise TypeError(name)
        return one_line(value, _LONGEST_NAME)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(name)
    return float(value)
