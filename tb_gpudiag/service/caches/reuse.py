"""Results that others have of a trace: in the shared cache, or in a sidecar next to the trace.

Only a process that can open the trace itself gets them, and only if the trace is the one that was analyzed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tb_gpudiag.digest.digested import digest_file
from tb_gpudiag.errors import CorruptEntry, TraceError, UsageError
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.diagnosis import Progress
from tb_gpudiag.service.analyses.diagnoses import DIGEST, Diagnosis, diagnosis_in, digest_in, digest_result
from tb_gpudiag.service.analyses.task import EntryContent
from tb_gpudiag.service.caches.cache_entry import Unpacked, unpack, write_to
from tb_gpudiag.service.caches.shared_cache import SharedCache, owner
from tb_gpudiag.service.caches.trace_content import content_key, fingerprint
from tb_gpudiag.trace.files.copying import whole_file
from tb_gpudiag.trace.files.find import TraceFile
from tb_gpudiag.trace.files.opening import open_local
from tb_gpudiag.trace.files.source import is_remote

SIDECAR_SUFFIX: Final = ".gpudiag"


def known_diagnosis(file: TraceFile, shared: SharedCache | None) -> Diagnosis | None:
    """Return the diagnosis that is already known of this trace; None if there is none."""
    for found, origin in _known(file, shared, ("diagnose",)):
        try:
            return diagnosis_in(found, file, origin)
        except Exception:  # whatever is in it: the trace itself is read instead
            continue
    return None


def known_digest(file: TraceFile, shared: SharedCache | None) -> EntryContent | None:
    """Return the cache entry of the digest that is already known of this trace; None if there is none."""
    for found, origin in _known(file, shared, ("digest", "diagnose")):
        try:
            content = found.arrays[DIGEST].tobytes() if found.arrays else found.report_gz
            return digest_result(digest_in(content, file), origin)
        except Exception:
            continue
    return None


class Marker:
    """Marks a result as that of the trace as it was before and after the analysis."""

    def __init__(self, file: TraceFile) -> None:
        self._file = file
        self._before = fingerprint(file) if content_key("", file) else ""

    def marked(self, result: EntryContent, kind: str) -> EntryContent:
        """Return the result with what others recognize the trace by; without, if the trace has changed."""
        if not self._before or fingerprint(self._file) != self._before:
            return result
        marks = {"key": content_key(kind, self._file), "trace": self._before}
        return result._replace(summary={**result.summary, **marks})


def new_digest(file: TraceFile, progress: Progress | None = None, *, marked: bool) -> EntryContent:
    """Diagnose the trace and return the cache entry of its digest.

    Raises:
        TraceError: the file cannot be read.
    """
    marker = Marker(file) if marked else None
    report, digest = digest_file(file, progress)
    result = digest_result(digest)
    is_final = report.trace.status != pb.TraceInfo.WRITING
    return marker.marked(result, "digest") if marker is not None and is_final else result


def without_marks(summary: Mapping[str, str]) -> Mapping[str, str]:
    """Return the summary of a result that is part of one that others have."""
    return {name: value for name, value in summary.items() if name not in ("key", "trace")}


def share(result: EntryContent, shared: SharedCache) -> None:
    """Put a marked result into the shared cache; nothing else."""
    key = result.summary.get("key")
    if key:
        shared.put(key, lambda file: write_to(file, result.content, result.arrays, result.summary))


def has_sidecar(file: TraceFile) -> bool:
    """Return whether there is a sidecar that is that of this trace."""
    sidecar = _sidecar(file)
    return sidecar is not None and sidecar[0].is_of(content_key("diagnose", file), fingerprint(file))


def write_sidecar(file: TraceFile, result: EntryContent) -> Path:
    """Write a marked result next to the trace, whole or not at all. Return its path.

    Raises:
        UsageError: the trace is remote, or is being written.
        Unreadable: the file cannot be written.
    """
    if is_remote(file.path) or not result.summary.get("key"):
        raise UsageError(
            "no sidecar is written: the trace is not on a local disk, or is being written",
            where=file.path,
            remedy="copy the trace to a local disk, or wait until it is complete",
        )
    target = Path(f"{file.path}{SIDECAR_SUFFIX}")
    if target.is_symlink():  # it may lead to any file of this user
        raise UsageError("no sidecar is written: it is a link", where=str(target), remedy="delete the link")
    with whole_file(target) as out:
        write_to(out, result.content, result.arrays, result.summary)
    return target


def _known(
    file: TraceFile, shared: SharedCache | None, kinds: tuple[str, ...]
) -> Iterator[tuple[Unpacked, str]]:
    """Yield entries of this trace, and whose they are."""
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
    for kind in kinds if shared is not None else ():
        entry = shared.find(content_key(kind, file), mark) if shared is not None else None
        if entry is not None:
            yield entry[0], f"{entry[1]} (shared cache)"


def _sidecar(file: TraceFile) -> tuple[Unpacked, str] | None:
    path = f"{file.path}{SIDECAR_SUFFIX}"
    try:
        with open_local(path, file.folder) as sidecar:
            return unpack(sidecar, Path(path)), owner(os.fstat(sidecar.fileno()).st_uid)
    except (OSError, TraceError, CorruptEntry):
        return None
