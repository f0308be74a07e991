"""What an analysis process does with one trace, by the kind of its task. Imported in that process only."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from tb_gpudiag.report.diagnosis import Progress
from tb_gpudiag.service.analyses.diagnoses import DIGEST, diagnose_whole
from tb_gpudiag.service.analyses.task import EntryContent, Task
from tb_gpudiag.service.caches.cache_entry import entry_at
from tb_gpudiag.service.caches.claims import Claim, claim_of, known_or_claimed
from tb_gpudiag.service.caches.reuse import (
    Marker,
    known_diagnosis,
    known_digest,
    new_digest,
    without_marks,
)
from tb_gpudiag.service.caches.shared_cache import SharedCache

# Results of others are read within seconds, unless their storage is down.
LOOK_AT_MOST_S: Final = 30.0

T = TypeVar("T")


def do(task: Task, progress: Progress) -> EntryContent:
    """Do the task.

    Raises:
        TraceError: the file cannot be read.
        ProcessFailed: a source is gone.
    """
    if task.kind not in _KINDS:
        from tb_gpudiag.service.analyses import joint_tasks  # a diagnosis of one trace needs nothing of jobs/

        return joint_tasks.do(task, progress)
    return _KINDS[task.kind](task, progress)


def _diagnose(task: Task, progress: Progress) -> EntryContent:
    shared = _shared(task)
    claim = claim_of("diagnose", task.file, shared)
    known = known_or_claimed(partial(known_diagnosis, task.file, shared), claim, progress, _soon)
    if known is not None:
        return known.result()
    with _until_shared(claim) as shown:
        marker = Marker(task.file) if shared is not None else None
        found = diagnose_whole(task.file, progress)
        progress(0.95, "saving")
        result = found.result()
        return shown(marker.marked(result, "diagnose") if marker is not None and found.is_final else result)


def _digest(task: Task, progress: Progress) -> EntryContent:
    entry = entry_at(task.diagnosis) if task.diagnosis else None
    if entry is not None and DIGEST in entry.columns:
        return EntryContent(entry.content(DIGEST), {}, without_marks(entry.summary))
    shared = _shared(task)
    claim = claim_of("digest", task.file, shared)
    known = known_or_claimed(partial(known_digest, task.file, shared), claim, progress, _soon)
    if known is not None:
        return known
    with _until_shared(claim) as shown:
        return shown(new_digest(task.file, progress, marked=shared is not None))


@contextlib.contextmanager
def _until_shared(claim: Claim | None) -> Iterator[Callable[[EntryContent], EntryContent]]:
    """Release the claim, but not that of a result to share: TensorBoard does that, which releases it."""
    to_share = False

    def note(result: EntryContent) -> EntryContent:
        nonlocal to_share
        to_share = bool(result.summary.get("key"))
        return result

    try:
        yield note
    finally:
        if claim is not None and not to_share:
            claim.release()


def _shared(task: Task) -> SharedCache | None:
    return SharedCache(Path(task.shared), 0) if task.shared else None


def _soon(look: Callable[[], T | None]) -> T | None:
    """Return what is found; None if the storage does not answer soon: the trace is analyzed instead."""
    found: list[T | None] = []
    thread = threading.Thread(target=lambda: found.append(look()), name="gpudiag-look", daemon=True)
    thread.start()
    thread.join(LOOK_AT_MOST_S)
    return found[0] if found else None


_KINDS: Final[Mapping[str, Callable[[Task, Progress], EntryContent]]] = {
    "diagnose": _diagnose,
    "digest": _digest,
}
