"""How everyone obtains the result of a trace: from others who have it, or else by analyzing the trace.

Results of others are in the shared cache, or in a sidecar next to the trace. Only a process that can open the
trace gets them, and only if it is the same trace that was analyzed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from tb_gpudiag.errors import CorruptEntry, TraceError, UsageError
from tb_gpudiag.service.analyses.diagnoses import AnalyzedTrace, Diagnosis, ResultKind
from tb_gpudiag.service.caches.cache_entry import Unpacked, unpack, write_to
from tb_gpudiag.service.caches.claims import claim_of, known_or_claimed
from tb_gpudiag.service.caches.shared_cache import SharedCache, owner
from tb_gpudiag.service.caches.trace_content import content_key, fingerprint
from tb_gpudiag.trace.files.copying import whole_file
from tb_gpudiag.trace.files.find import TraceFile
from tb_gpudiag.trace.files.opening import open_local
from tb_gpudiag.trace.files.source import is_remote

if TYPE_CHECKING:
    from tb_gpudiag.report.diagnosis import Progress

SIDECAR_SUFFIX: Final = ".gpudiag"

R = TypeVar("R", bound=AnalyzedTrace)


def obtain(
    file: TraceFile,
    kind: ResultKind[R],
    shared: SharedCache | None,
    progress: Progress = lambda share, stage: None,
    *,
    marked: bool = False,
    share_later: bool = False,
) -> R:
    """Return the result of a trace.

    shared: the shared cache; None if results are not shared.
    marked: set the result's marks even if results are not shared.
    share_later: the caller puts the result into the shared cache.
    Raises TraceError: the file cannot be read.
    """
    claim = claim_of(kind.name, file, shared)
    found = known_or_claimed(partial(known, file, kind, shared), claim, progress)
    if found is not None:
        return replace(found, marks=_marks(file, kind)) if marked else found
    to_share = False
    try:
        marks = _marks(file, kind) if marked or shared is not None else {}
        found = kind.of_trace(file, progress)
        if marks and found.is_final and _marks(file, kind) == marks:  # the trace has not changed meanwhile
            found = replace(found, marks=marks)
            to_share = shared is not None
        if shared is not None and to_share and not share_later:
            share(found, shared)
        return found
    finally:
        if claim is not None and not (to_share and share_later):
            claim.release()


def known(file: TraceFile, kind: ResultKind[R], shared: SharedCache | None) -> R | None:
    """Return a result that others have of this trace; None if there is none."""
    for entry, origin in _entries(file, kind, shared):
        try:
            return kind.of_entry(entry, file, origin)
        except Exception:  # whatever is in the entry: the trace is analyzed instead
            continue
    return None


def share(result: AnalyzedTrace, shared: SharedCache) -> None:
    """Put a marked result into the shared cache."""
    content, arrays, summary = result.entry
    if result.marks:
        shared.put(result.marks["key"], lambda file: write_to(file, content, arrays, summary))


def has_sidecar(file: TraceFile) -> bool:
    """Return whether this trace has a sidecar, as it is now."""
    sidecar = _sidecar(file)
    return sidecar is not None and sidecar[0].is_of(content_key("diagnose", file), fingerprint(file))


def write_sidecar(file: TraceFile, result: Diagnosis) -> Path:
    """Write a marked result next to the trace, whole or not at all. Return its path.

    Raises:
        UsageError: the trace is remote, or is being written.
        Unreadable: the file cannot be written.
    """
    if is_remote(file.path) or not result.marks:
        raise UsageError(
            "no sidecar is written: the trace is not on a local disk, or is being written",
            where=file.path,
            remedy="copy the trace to a local disk, or wait until it is complete",
        )
    target = Path(f"{file.path}{SIDECAR_SUFFIX}")
    if target.is_symlink():  # it may lead to any file of this user
        raise UsageError("no sidecar is written: it is a link", where=str(target), remedy="delete the link")
    with whole_file(target) as out:
        write_to(out, *result.entry)
    return target


def _marks(file: TraceFile, kind: ResultKind[R]) -> dict[str, str]:
    """Return how others recognize the result of this trace, as it is now; nothing if they cannot."""
    key = content_key(kind.name, file)
    mark = fingerprint(file) if key else ""
    return {"key": key, "trace": mark} if mark else {}


def _entries(
    file: TraceFile, kind: ResultKind[R], shared: SharedCache | None
) -> Iterator[tuple[Unpacked, str]]:
    """Yield entries of this trace, each with its origin."""
    if not content_key("", file):
        return
    sidecar = _sidecar(file)
    if sidecar is None and shared is None:
        return
    mark = fingerprint(file)
    if sidecar is not None:
        found, user = sidecar
        if found.is_of(content_key("diagnose", file), mark):
            yield found, f"{user} (sidecar)"
    for name in kind.found_in if shared is not None else ():
        entry = shared.find(content_key(name, file), mark) if shared is not None else None
        if entry is not None:
            yield entry[0], f"{entry[1]} (shared cache)"


def _sidecar(file: TraceFile) -> tuple[Unpacked, str] | None:
    path = f"{file.path}{SIDECAR_SUFFIX}"
    try:
        with open_local(path, file.folder) as sidecar:
            return unpack(sidecar, Path(path)), owner(os.fstat(sidecar.fileno()).st_uid)
    except (OSError, TraceError, CorruptEntry):
        return None
