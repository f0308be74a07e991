"""Digest many traces, in processes on this machine.

If a process dies (killed, or stopped by a limit of the system), the trace that it was reading is tried again
after all others. A trace whose process dies again gets an error.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from queue import SimpleQueue
from typing import Any, Final

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.digest.digest_files import SUFFIX, find_digests, from_bytes, read_digest
from tb_gpudiag.errors import Defect, GpudiagError, LinksNotFollowed, ProcessFailed
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.service.analyses.diagnoses import (
    ONLY_DIGEST,
    AnalyzedTrace,
    ResultKind,
    databases_apart,
    known,
    obtain,
)
from tb_gpudiag.service.caches.shared_cache import SharedCache
from tb_gpudiag.service.processes.child import Child, ChildEnded, ChildMessage
from tb_gpudiag.service.processes.gate import ask_apart, limit_here
from tb_gpudiag.service.processes.memory_limit import AnalysisLimit, out_of_time
from tb_gpudiag.service.processes.serving import Reply
from tb_gpudiag.service.settings import command_memory_limit_bytes, settings_from
from tb_gpudiag.trace.files.find import TraceFile, find_traces

# Each process gets at least this much memory. Reading a trace takes some 300 MB for libraries and chunks, and
# up to four times the size of the unpacked file, which may be ten times as large as the packed one.
LEAST_BYTES_EACH: Final = 1 << 30

# A process spends half a second on imports, in which it reads some 30 MB: 3 MB as files are packed.
PACKED_BYTES_EACH: Final = 3 << 20
BYTES_EACH: Final = 30 << 20

MODULE = "tb_gpudiag.service.analyses.digests"


@dataclass(frozen=True, eq=False)
class Digested:
    """The outcome for one file: a digest or an error."""

    file: TraceFile
    digest: Digest | None
    error: GpudiagError | None = None


def digests_at(path: str) -> list[Digest]:
    """Return the digests at a path, for a program: read from its digest files, and made of its traces in
    processes of their own. Raises GpudiagError: a file cannot be read."""
    digests = [read_digest(name) for name in find_digests(path)]
    if path.endswith(SUFFIX):
        return digests
    found = find_traces(path)
    problems = [problem for problem in found.problems if not isinstance(problem, LinksNotFollowed)]
    if problems and not digests:
        raise problems[0]
    known = {digest.about.id for digest in digests}
    made = list(digest_all([file for file in found.files if file.identity not in known], apart=True))
    for one in made:
        if one.error is not None:
            raise one.error
    made.sort(key=lambda one: found.files.index(one.file))
    return digests + [one.digest for one in made if one.digest is not None]


def digest_all(
    files: Sequence[TraceFile], processes: int | None = None, *, apart: bool = False
) -> Iterator[Digested]:
    """Diagnose the files and yield their digests, in the order in which they are done: kept ones first.

    processes: None means as many as the files are worth, and the machine has cores and memory for.
    apart: this process is no command's, and reads no file itself. Raises ProcessFailed.
    """
    kept, todo = SharedCache.of_user(settings_from()), []
    for file in files:
        found = known(file, ONLY_DIGEST, kept)
        if found is None:
            todo.append(file)
        else:
            yield Digested(file, found.digest)
    count = min(processes or _room(todo), len(todo))
    if count > 1:
        yield from _Processes(todo, count).run()
    elif apart:
        yield from (outcome(file, digest_apart(file)) for file in todo)
    elif count:
        guard = limit_here()
        yield from (outcome(file, digest_content(file, guard)) for file in todo)


class _Processes:
    """Processes that each digest one file after another."""

    def __init__(self, files: Sequence[TraceFile], count: int) -> None:
        # The largest first: at the end, no process shall have to wait for a large one.
        self._waiting = deque(sorted(files, key=lambda file: -file.size_bytes))
        self._limit_bytes = command_memory_limit_bytes() // count
        self._time_limit_s = settings_from().time_limit_s
        self._children = [Child(MODULE, nice=0) for _ in range(count)]
        self._done: SimpleQueue[tuple[TraceFile, bytes | GpudiagError | None]] = SimpleQueue()

    def run(self) -> Iterator[Digested]:
        left = len(self._waiting)
        for child in self._children:
            threading.Thread(target=self._digest, args=(child,), name="gpudiag-digest", daemon=True).start()
        try:
            suspects = []
            for _ in range(left):
                file, found = self._done.get()
                if found is None:
                    suspects.append(file)
                else:
                    yield outcome(file, found)
            for file in suspects:
                alone = Child(MODULE, nice=0)
                self._children.append(alone)
                yield outcome(file, self._asked(alone, file) or _killed(file))
                alone.stop()
        finally:
            for child in self._children:
                child.close()

    def _digest(self, child: Child) -> None:
        """Digest files until none is left. Runs on a thread for each process."""
        with contextlib.suppress(IndexError):
            while True:
                file = self._waiting.popleft()
                self._done.put((file, self._asked(child, file)))
        child.stop()

    def _asked(self, child: Child, file: TraceFile) -> bytes | GpudiagError | None:
        """Return the content of a file's digest, or why there is none; None if the process was killed."""
        request = {
            "where": file.path,
            "file": asdict(file),
            "below": os.getcwd(),
            "memory_limit_bytes": self._limit_bytes,
        }
        try:
            return child.ask(request, self._time_limit_s).content
        except GpudiagError as error:
            return error
        except TimeoutError:
            return out_of_time(self._time_limit_s, file.path)
        except ChildEnded:
            return None


def answer(request: dict[str, Any], reply: Reply) -> ChildMessage:
    """Digest the file that is asked for, in a process of its own."""
    reply.bound_memory(request["memory_limit_bytes"])
    os.chdir(request["below"])  # the path may be relative
    return ChildMessage(content=_digest_content(TraceFile(**request["file"]), ONLY_DIGEST))


def digest_apart(file: TraceFile) -> bytes | GpudiagError:
    """Return the content of the file's digest, made in a process of its own, or why there is none. Raises
    ProcessFailed: another process may succeed."""
    try:
        return ask_apart(MODULE, {"where": file.path, "file": asdict(file)}).content
    except ProcessFailed:
        raise
    except GpudiagError as error:
        return error


def digest_content(file: TraceFile, guard: AnalysisLimit) -> bytes | GpudiagError:
    """Return the content of the file's digest, or why there is none."""
    try:
        with guard.watched(file.path):
            return _digest_content(file, databases_apart(ONLY_DIGEST))
    except GpudiagError as error:
        return error
    except Exception as error:  # a bug must not cost the user the other files
        return guard.reached(error, file.path) or Defect.of(error, where=file.path)


def _digest_content(file: TraceFile, kind: ResultKind[AnalyzedTrace]) -> bytes:
    return obtain(file, kind, SharedCache.of_user(settings_from())).entry.content


def _killed(file: TraceFile) -> ProcessFailed:
    return ProcessFailed(
        "the process that read it was killed",
        where=file.path,
        remedy="the machine may be out of memory: close other programs, or record fewer steps",
    )


def outcome(file: TraceFile, found: bytes | GpudiagError) -> Digested:
    """Return the outcome of what `digest_content` returned."""
    if isinstance(found, GpudiagError):
        return Digested(file, None, found)
    return Digested(file, from_bytes(found, file.path))


def _room(files: Sequence[TraceFile]) -> int:
    """Return how many processes the files are worth, and this machine has cores and memory for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    worth = sum(
        file.size_bytes / (PACKED_BYTES_EACH if file.path.endswith(".gz") else BYTES_EACH) for file in files
    )
    return max(min(cores, command_memory_limit_bytes() // LEAST_BYTES_EACH, int(worth)), 1)
