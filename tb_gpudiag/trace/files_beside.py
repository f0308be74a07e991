"""Files that belong to a trace: the structured log of torch.compile, and the recordings of the captures of
the graphs that it replays, which have what the replay lacks."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import replace
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool
from tb_gpudiag.errors import NothingToRead, TraceError, Unreadable
from tb_gpudiag.trace.compile_log.log import CompileLog
from tb_gpudiag.trace.compile_log.read_log import UNKNOWN_PID, pid_of_log, read_compile_log
from tb_gpudiag.trace.events import CaptureTrace, Trace
from tb_gpudiag.trace.files.file_names import TraceFile
from tb_gpudiag.trace.files.opening import first_bytes
from tb_gpudiag.trace.files.source import is_remote
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.vocabulary.api_calls import CAPTURE_BEGIN, GRAPH_LAUNCH
from tb_gpudiag.vocabulary.marks import COMPILED_CODE, COMPILED_FUNCTION
from tb_gpudiag.vocabulary.patterns import lazy_re

FOLDER: Final = "capture_traces"
"""vLLM and SGLang write the recordings of their captures there, beside the others."""

# A server captures a graph for each of some dozen batch sizes.
MOST_CAPTURES: Final = 64

_RANK: Final = lazy_re(r"rank_?(\d{1,9})(?!\d)")


def with_captures(trace: Trace, file: TraceFile) -> Trace:
    """Return the trace with the recordings of captures in the folder `capture_traces` beside it, or where
    `file.capture` says, if the trace replays a graph.

    Raises TraceError: the file or folder that was named cannot be read, or has no capture.
    """
    named = file.capture
    if not _occurs(trace, GRAPH_LAUNCH):
        note = f"the trace replays no graph, so {named} says nothing about it"
        return replace(trace, notes=[*trace.notes, note]) if named else trace
    if named and not os.path.isdir(named):
        return replace(trace, captures=[_capture(named, "")])
    if is_remote(file.path) and not named:
        return trace
    folder = named or os.path.join(os.path.dirname(file.path), FOLDER)
    found = []
    for path in _paths(folder, _rank(trace), must=bool(named)):
        with suppress(TraceError):
            found.append(_capture(path, "" if named else file.folder))
    if named and not found:
        raise NothingToRead("no recording of a capture was found", where=named)
    return replace(trace, captures=found)


def _capture(path: str, folder: str) -> CaptureTrace:
    """Read one recording. Raises TraceError."""
    trace = read_trace(path, folder=folder)
    if not _occurs(trace, CAPTURE_BEGIN):
        raise NothingToRead("it does not show the capture of a graph", where=path)
    return CaptureTrace(os.path.basename(path), trace.events)


def _occurs(trace: Trace, pattern: re.Pattern[str]) -> bool:
    return bool((trace.events.matcher.matches(pattern) & trace.events.has_name).any())


def _paths(folder: str, rank: int, *, must: bool) -> list[str]:
    """Paths of the traces in a folder, without those of other ranks by their names.

    Raises Unreadable: the folder must be there, and is not."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith((".json", ".json.gz")))
    except OSError as error:
        if must:
            raise Unreadable(error.strerror or str(error), where=folder) from error
        return []
    said = ((name, _RANK.search(name)) for name in names)
    own = [name for name, found in said if rank == NONE or found is None or int(found[1]) == rank]
    return [os.path.join(folder, name) for name in own[:MOST_CAPTURES]]


PREFIX: Final = "dedicated_log_torch_trace_"
SUFFIX: Final = ".log"

# Each process of a job writes a log, and so does each start of the job. A folder of thousands of ranks is
# still listed as a whole.
MOST_LOGS: Final = 10_000
# Logs of one process id: containers start with the same ids again and again, and one runs on each machine.
_MOST_READ: Final = 64
# The name of the file that logs is at the start of its first line.
_HEAD_BYTES: Final = 4 << 10


def with_compile_log(trace: Trace, file: TraceFile) -> Trace:
    """Return the trace with the log of the process that recorded it, if there is one.

    It is looked for in the trace's own folder, or where `file.torch_trace` says: a note says if no log there
    is of this process. Logs beside a trace without compiled code are not opened.

    Raises TraceError: the log that was named cannot be read.
    """
    named = file.torch_trace
    compiled = _compiled_code(trace)
    if not compiled.any() or (is_remote(file.path) and not named):
        return trace
    if named and not os.path.isdir(named):
        return replace(trace, compile_log=read_compile_log(named))
    try:
        logs = _logs_in(named or os.path.dirname(file.path) or ".")
    except OSError as error:
        if named:
            raise Unreadable(error.strerror or str(error), where=named) from error
        return trace
    found = _of_process(logs, trace, compiled, "" if named else file.folder)
    if found is None and named:
        note = f"none of the {len(logs):,} logs in {named} is of the process that recorded this trace"
        return replace(trace, notes=[*trace.notes, note])
    return replace(trace, compile_log=found)


def _compiled_code(trace: Trace) -> Bool:
    """Mask of the events that are compiled, or that compile, shape (n,)."""
    events = trace.events
    found = events.matcher.matches(COMPILED_CODE) | events.matcher.matches(COMPILED_FUNCTION)
    return found[events.name] if found.any() else np.zeros(len(events), np.bool_)


def _logs_in(folder: str) -> list[str]:
    """Paths of the logs in a folder, the last one written first. Raises OSError."""
    found: list[os.DirEntry[str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.name.endswith(SUFFIX):
                found.append(entry)
                if len(found) >= MOST_LOGS:
                    break
    return [path for _, path in sorted(((_written_ns(e), e.path) for e in found), reverse=True)]


def _written_ns(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_mtime_ns
    except OSError:  # deleted meanwhile
        return 0


def _of_process(logs: list[str], trace: Trace, compiled: Bool, folder: str) -> CompileLog | None:
    """Read the log of a process with compiled code, if that compiled something before the trace ended. A log
    that does not say its process is taken if it is the only one."""
    threads = [trace.events.threads[i] for i in np.unique(trace.events.thread[compiled])]
    pids = {int(t.pid[:10]) for t in threads if t.pid.isascii() and t.pid.isdecimal()}
    if len(logs) == 1:
        pids.add(UNKNOWN_PID)
    rank = _rank(trace)
    of_rank = [path for path in logs if _may_be_of(path, rank)]
    for path in [path for path in of_rank if _pid(path, folder) in pids][:_MOST_READ]:
        with suppress(TraceError):
            log = read_compile_log(path, folder)
            if (NONE in (rank, log.rank) or log.rank == rank) and _began_before_the_end(log, trace):
                return log
    return None


def _rank(trace: Trace) -> int:
    """The rank that recorded the trace, or NONE. Processes of ranks on several machines have the same ids."""
    rank = trace.metadata.distributed.get("rank")
    return rank if isinstance(rank, int) and rank >= 0 else NONE


def _may_be_of(path: str, rank: int) -> bool:
    """Whether a log may be of this rank by its name, which says it if torch knew it when it began to log."""
    named = re.match(PREFIX + r"rank_(\d{1,9})_", os.path.basename(path))
    return named is None or rank == NONE or int(named[1]) == rank


def _began_before_the_end(log: CompileLog, trace: Trace) -> bool:
    ends_ns = trace.origin_ns + int(np.max(trace.events.end_ns, initial=0))
    starts_ns = [compilation.start_ns for compilation in log.compilations if compilation.start_ns]
    return not trace.origin_ns or min(starts_ns, default=0) <= ends_ns


def _pid(path: str, folder: str) -> int | None:
    with suppress(OSError, TraceError):
        return pid_of_log(first_bytes(path, _HEAD_BYTES, folder))
    return None
