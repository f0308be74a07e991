"""Digest many traces, in processes on this machine.

A process that dies (killed, or stopped by a limit of the system) costs the traces that it and its neighbors
were reading: each of them is tried again alone, and the one that kills its process again gets an error.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from typing import Final

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.digest.digest_files import from_bytes
from tb_gpudiag.errors import Defect, GpudiagError, JobFailed, is_out_of_memory
from tb_gpudiag.service.caches.claims import claim_of, known_or_claimed
from tb_gpudiag.service.caches.reuse import known_digest, new_digest, share
from tb_gpudiag.service.caches.shared_cache import SharedCache
from tb_gpudiag.service.processes.guarded_memory import MemoryLimit
from tb_gpudiag.service.settings import command_memory_limit_bytes, settings_from
from tb_gpudiag.trace.files.find import TraceFile

# Reading a trace takes some 300 MB for libraries and chunks, and up to four times the size of the file, which
# may be packed ten to one. With less memory than this for each, fewer processes run.
LEAST_BYTES_EACH: Final = 1 << 30

_guard: MemoryLimit | None = None


@dataclass(frozen=True)
class Digested:
    """The outcome for one file: a digest or an error."""

    file: TraceFile
    digest: Digest | None
    error: GpudiagError | None = None


def digest_all(files: Sequence[TraceFile], processes: int | None = None) -> Iterator[Digested]:
    """Diagnose the files and yield their digests, in the order in which they are done.

    processes: None means as many as the machine has cores and memory for.
    """
    count = min(processes or _room(), len(files))
    if count <= 1:
        for file in files:
            yield outcome(file, digest_content(file))
        return
    yield from _Pool(files, count).run()


class _Pool:
    """Processes that digest files. At most as many files are submitted as there are processes, so that it is
    known which ones a process that died was reading."""

    def __init__(self, files: Sequence[TraceFile], processes: int) -> None:
        # The largest first, so that none of them is left for the end.
        self._waiting = deque(sorted(files, key=lambda file: -file.size_bytes))
        self._suspects: deque[TraceFile] = deque()
        self._processes = processes
        self._limit_bytes = command_memory_limit_bytes() // processes

    def run(self) -> Iterator[Digested]:
        while self._waiting:
            yield from self._together()
        while self._suspects:
            yield self._alone(self._suspects.popleft())

    def _together(self) -> Iterator[Digested]:
        """Digest the waiting files until there are none, or until a process dies."""
        running: dict[Future[bytes | GpudiagError], TraceFile] = {}
        with self._executor(self._processes) as pool:
            while self._waiting or running:
                try:
                    while self._waiting and len(running) < self._processes:
                        future = pool.submit(digest_content, self._waiting[0])
                        running[future] = self._waiting.popleft()
                except BrokenProcessPool:
                    self._suspects += running.values()
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    file = running.pop(future)
                    found = _result(future)
                    if found is None:
                        self._suspects.append(file)
                    else:
                        yield outcome(file, found)

    def _alone(self, file: TraceFile) -> Digested:
        with self._executor(1) as pool, contextlib.suppress(BrokenProcessPool):
            return outcome(file, pool.submit(digest_content, file).result())
        killed = JobFailed(
            "the process that read it was killed",
            where=file.path,
            remedy="the machine may be out of memory: close other programs, or record fewer steps",
        )
        return Digested(file, None, killed)

    def _executor(self, processes: int) -> ProcessPoolExecutor:
        # Not fork: threads of DuckDB and Arrow would be cut in two.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(processes, context, _begin, (self._limit_bytes,))


def _begin(limit_bytes: int) -> None:
    global _guard
    _guard = MemoryLimit(limit_bytes)


def digest_content(file: TraceFile) -> bytes | GpudiagError:
    """Return the content of the file's digest, or why there is none. Share it: see reuse.py."""
    guard = _guard or MemoryLimit()
    shared = SharedCache.of(settings_from())
    claim = claim_of("digest", file, shared)
    try:
        with guard.watched():
            known = known_or_claimed(partial(known_digest, file, shared), claim, lambda *_: None)
            if known is not None:
                return known.content
            result = new_digest(file, marked=shared is not None)
            if shared is not None:
                share(result, shared)
            return result.content
    except GpudiagError as error:
        return error
    except Exception as error:  # a bug must not cost the user the other files
        if is_out_of_memory(error):
            return guard.error(file.path)
        return Defect.of(error, where=file.path)
    finally:
        if claim is not None:
            claim.release()


def _result(future: Future[bytes | GpudiagError]) -> bytes | GpudiagError | None:
    try:
        return future.result()
    except BrokenProcessPool:
        return None


def outcome(file: TraceFile, found: bytes | GpudiagError) -> Digested:
    """Return the outcome of what `digest_content` returned."""
    if isinstance(found, GpudiagError):
        return Digested(file, None, found)
    return Digested(file, from_bytes(found, file.path))


def _room() -> int:
    """Return how many processes this machine has cores and memory for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(min(cores, command_memory_limit_bytes() // LEAST_BYTES_EACH), 1)
