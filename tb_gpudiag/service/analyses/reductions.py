"""Answers that need the digests of several recordings: a job's ranks, a run's history, a comparison.

Each recording is digested by a process, and so is the answer computed. Both are kept in the cache.
"""

from __future__ import annotations

import base64
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.service.analyses.analysis_queue import AnalysisQueue
from tb_gpudiag.service.analyses.pending import Pending, diagnosis_key
from tb_gpudiag.service.analyses.protocol import BETWEEN_SIDES
from tb_gpudiag.service.caches.cache import Cache, entry_key
from tb_gpudiag.service.caches.cache_entry import CorruptEntry
from tb_gpudiag.service.index.log_index import TraceEntry
from tb_gpudiag.service.index.records import Record
from tb_gpudiag.trace.files.find import TraceFile

Group = Sequence[TraceEntry]


class Reduced(NamedTuple):
    """An answer as gzipped JSON, and the summary of its entry in the cache."""

    content: bytes
    summary: Mapping[str, str]


@dataclass
class _Digests:
    """State of the digests of some recordings."""

    paths: list[str]  # cache entries
    keys: list[str]
    ids: list[str]
    total: int
    errors: list[GpudiagError]  # of the recordings that cannot be read
    waiting: str = ""  # why one of them has to wait

    @property
    def complete(self) -> bool:
        return len(self.paths) + len(self.errors) == self.total


class Reductions:
    """Computes answers on demand. Safe for threads, like the cache and the jobs."""

    def __init__(self, cache: Cache, jobs: AnalysisQueue) -> None:
        self._cache = cache
        self._jobs = jobs

    def ask(self, kind: str, groups: Sequence[Group], records: Sequence[Record] = ()) -> Reduced | Pending:
        """Return the answer, or how far it is.

        kind: job, history or compare. groups: one, or two for compare; each has a recording at least, but
        for history there may be records instead.
        """
        found = [self._digests(group) for group in groups]
        waiting = _not_complete(found) or (None if records else _unreadable(found))
        if waiting is not None:
            return waiting
        sides = [(digests.keys, digests.ids) for digests in found]
        if records:
            sides.append(([record.file.identity for record in records], [record.id for record in records]))
        key = _key(kind, *sides)
        file = groups[0][0].file if groups[0] else records[0].file
        return self._kept(key) or self._compute(key, kind, file, found, records)

    def _compute(
        self, key: str, kind: str, file: TraceFile, found: Sequence[_Digests], records: Sequence[Record]
    ) -> Pending:
        sources = [path for digests in found for path in (*digests.paths, BETWEEN_SIDES)]
        ids = [id_ for digests in found for id_ in (*digests.ids, BETWEEN_SIDES)]
        carried = tuple(
            (record.id, record.time_ns, base64.b64encode(record.answer).decode()) for record in records
        )
        job = self._jobs.ask(key, file, kind, tuple(sources[:-1]), tuple(ids[:-1]), carried)
        if job.state == "failed":
            self._drop_damaged([key for digests in found for key in digests.keys])
        return Pending(job.state, job.progress, job.stage, job.error)

    def known_job(self, ranks: Group, there: Container[str]) -> Mapping[str, str] | None:
        """Return the summary of a job's answer; None if the cache does not have it. Asks for nothing.

        there: the keys in the cache.
        """
        keys = []
        for rank in ranks:
            keys.append(_digest_key(diagnosis_key(rank)))
            if keys[-1] not in there:
                return None
        key = _key("job", (keys, [rank.id for rank in ranks]))
        entry = self._cache.find(key) if key in there else None
        return entry.summary if entry is not None else None

    def _digests(self, group: Group) -> _Digests:
        """Return where the digests are, and ask for those that are not there."""
        found = _Digests([], [], [], len(group), [])
        for entry in group:
            diagnosis = diagnosis_key(entry)
            if not diagnosis:  # it is still being written
                continue
            key = _digest_key(diagnosis)
            path = self._cache.place(key)
            if path is not None:
                found.paths.append(str(path))
                found.keys.append(key)
                found.ids.append(entry.id)
                continue
            whole = self._cache.place(diagnosis)
            sources = (str(whole),) if whole is not None else ()
            state = self._jobs.ask(key, entry.file, "digest", sources)
            if state.state == "failed" and state.error is not None:
                found.errors.append(state.error)
            elif state.state == "queued" and state.stage:
                found.waiting = state.stage
        return found

    def _drop_damaged(self, keys: Sequence[str]) -> None:
        """Delete digests that cannot be read, so that they are made again."""
        for key in keys:
            self._kept(key)

    def _kept(self, key: str) -> Reduced | None:
        path: Path | None = self._cache.place(key)
        if path is None:
            return None
        try:
            entry = self._cache.find(key)
            return Reduced(entry.report_gz(), entry.summary) if entry is not None else None
        except CorruptEntry:
            self._cache.drop(path)
        except OSError:
            pass
        return None


def _not_complete(found: Sequence[_Digests]) -> Pending | None:
    """Return how far the digests are; None if they are all there or cannot be made."""
    if all(digests.complete for digests in found):
        return None
    total = sum(digests.total for digests in found)
    done = sum(len(digests.paths) + len(digests.errors) for digests in found)
    waiting = next((f". {digests.waiting}" for digests in found if digests.waiting), "")
    stage = f"{done:,} of {total:,} recordings are analyzed{waiting}"
    return Pending("running", progress=done / (total + 1), stage=stage)


def _unreadable(found: Sequence[_Digests]) -> Pending | None:
    """Return why a side has no digest at all; None if each has one."""
    empty = next((digests for digests in found if not digests.paths), None)
    return Pending("failed", error=empty.errors[0]) if empty is not None else None


def _digest_key(diagnosis: str) -> str:
    return entry_key("digest", diagnosis)


def _key(kind: str, *sides: tuple[Sequence[str], Sequence[str]]) -> str:
    """Return the key of an answer about digests with these keys and ids, on one side or two."""
    return entry_key(kind, *(part for keys, ids in sides for part in (*keys, *ids, BETWEEN_SIDES)))
