"""How everyone obtains the result of a trace: from the store of results, or else by analyzing the trace.

Only a process that can open the trace gets a result, and only if it is the same trace that was analyzed.
A command reads databases in a process of its own: SQLite runs for as long as a database makes it run, and
only its process can be ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tb_gpudiag.service.analyses.diagnoses import REPORT, AnalyzedTrace, Diagnosis, ResultKind, without_page
from tb_gpudiag.service.caches.cache_entry import Unpacked, write_to
from tb_gpudiag.service.caches.claims import claim_of, content_key, fingerprint, known_or_claimed
from tb_gpudiag.service.caches.shared_cache import SharedCache
from tb_gpudiag.trace.files.find import TraceFile

if TYPE_CHECKING:
    from tb_gpudiag.report.diagnosis import Progress
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tb_gpudiag.service.analyses.task import Task
from tb_gpudiag.service.caches.cache_entry import unpack
from tb_gpudiag.service.processes.gate import ask_apart
from tb_gpudiag.service.settings import command_memory_limit_bytes
from tb_gpudiag.trace.files.find import may_be_database

R = TypeVar("R", bound=AnalyzedTrace)


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
