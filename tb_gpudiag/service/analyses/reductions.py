"""Answers that need the digests of several recordings: a job's ranks, a run's history, a comparison.

Processes diagnose each recording, and compute the answer from the digests. The cache keeps both.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from tb_gpudiag.errors import CorruptEntry, GpudiagError
from tb_gpudiag.service.analyses.analysis_queue import AnalysisQueue
from tb_gpudiag.service.analyses.task import DIGEST, DigestSource, Pending, RecordSource, Task, keys_of
from tb_gpudiag.service.caches.cache import Cache, entry_key
from tb_gpudiag.service.caches.cache_entry import CacheEntry, read_entry
from tb_gpudiag.service.index.log_index import TraceEntry
from tb_gpudiag.service.index.records import Record

_Read = TypeVar("_Read")


class Reduced(NamedTuple):
    """An answer as gzipped JSON, and the summary of its entry in the cache."""

    content: bytes
    summary: Mapping[str, str]


@dataclass
class _Digests:
    """State of the digests of some recordings."""

    total: int
    keys: list[str] = field(default_factory=list)  # of those that are there
    sources: list[DigestSource] = field(default_factory=list)
    errors: list[GpudiagError] = field(default_factory=list)  # of the recordings that cannot be read
    waiting: str = ""  # why a recording has to wait

    @property
    def done(self) -> int:
        return len(self.keys) + len(self.errors)


class Reductions:
    """Computes answers on demand. Thread-safe, like the cache and the queue."""

    def __init__(self, cache: Cache, analyses: AnalysisQueue) -> None:
        self._cache = cache
        self._analyses = analyses

    def ask(
        self,
        kind: str,
        groups: Sequence[Sequence[TraceEntry]],
        records: Sequence[Record] = (),
        *,
        awaited: bool = True,
    ) -> Reduced | Pending:
        """Return the answer, or how far it is.

        kind: job, history or compare.
        groups: one, or two for compare. Each has at least one recording, or for history, records instead.
        awaited: see AnalysisQueue.ask.
        """
        found = [self._digests(group, awaited=awaited) for group in groups]
        waiting = _not_complete(found) or (None if records else _unreadable(found))
        if waiting is not None:
            return waiting
        sides = [(digests.keys, [source.id for source in digests.sources]) for digests in found]
        if records:
            sides.append(([record.file.identity for record in records], [record.id for record in records]))
        key = _key(kind, *sides)
        file = groups[0][0].file if groups[0] else records[0].file
        task = Task(
            file,
            kind,
            sides=tuple(tuple(digests.sources) for digests in found),
            records=tuple(
                RecordSource(record.id, record.time_ns, base64.b64encode(record.answer).decode())
                for record in records
            ),
        )
        kept = self._kept(key)
        if kept is not None:
            return kept
        state = self._analyses.ask(key, task, awaited=awaited)
        if state.state == "failed":
            for source in (source for side in task.sides for source in side):
                self._read(Path(source.path), lambda entry: entry.content(DIGEST))  # deletes a damaged one
        return state

    def known_job(self, ranks: Sequence[TraceEntry], there: Container[str]) -> Mapping[str, str] | None:
        """Return the summary of a job's answer; None if it is not in the cache. Starts no analysis.

        there: the keys in the cache.
        """
        found = [keys_of(rank) for rank in ranks]
        keys = [of.report for of in found if of is not None and (of.report in there or of.whole in there)]
        key = _key("job", (keys, [rank.id for rank in ranks]))
        entry = self._cache.find(key) if key in there else None
        return entry.summary if entry is not None else None

    def _digests(self, group: Sequence[TraceEntry], *, awaited: bool) -> _Digests:
        """Return where the digests are, and have the missing ones made."""
        found = _Digests(len(group))
        for entry in group:
            keys = keys_of(entry)
            if keys is None:  # it is still being written
                continue
            path = self._cache.place(keys.report) or self._cache.place(keys.whole)
            if path is not None:
                found.keys.append(keys.report)
                found.sources.append(DigestSource(entry.id, str(path)))
                continue
            state = self._analyses.ask(keys.report, Task(entry.file, "report"), awaited=awaited)
            if state.state == "failed" and state.error is not None:
                found.errors.append(state.error)
            elif state.state == "queued" and state.stage:
                found.waiting = state.stage
        return found

    def _kept(self, key: str) -> Reduced | None:
        path = self._cache.place(key)
        return self._read(path, lambda entry: Reduced(entry.report_gz(), entry.summary)) if path else None

    def _read(self, path: Path, read: Callable[[CacheEntry], _Read]) -> _Read | None:
        """Read an entry, and delete it if it is damaged."""
        try:
            entry = read_entry(path)
            return read(entry) if entry is not None else None
        except CorruptEntry:
            self._cache.drop(path)
        except OSError:
            pass
        return None


def _not_complete(found: Sequence[_Digests]) -> Pending | None:
    """Return how many digests there are; None if the others cannot be made."""
    total = sum(digests.total for digests in found)
    done = sum(digests.done for digests in found)
    if done == total:
        return None
    waiting = next((f". {digests.waiting}" for digests in found if digests.waiting), "")
    stage = f"{done:,} of {total:,} recordings are analyzed{waiting}"
    return Pending("running", progress=done / (total + 1), stage=stage)


def _unreadable(found: Sequence[_Digests]) -> Pending | None:
    """Return why a side has no digest at all; None if each side has one."""
    empty = next((digests for digests in found if not digests.keys), None)
    return Pending("failed", error=empty.errors[0]) if empty is not None else None


def _key(kind: str, *sides: tuple[Sequence[str], Sequence[str]]) -> str:
    """Return the key of an answer about digests with these keys and ids, on one side or two."""
    return entry_key(kind, *(part for keys, ids in sides for part in (*keys, *ids, "")))
