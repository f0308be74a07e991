"""Find the recordings of the captures of the graphs that a trace replays: they have what the replay lacks."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import replace
from typing import Final

from tb_gpudiag.errors import NothingToRead, TraceError, Unreadable
from tb_gpudiag.trace.events import CaptureTrace, Trace
from tb_gpudiag.trace.files.file_names import TraceFile
from tb_gpudiag.trace.files.source import is_remote
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.vocabulary.api_calls import CAPTURE_BEGIN, GRAPH_LAUNCH
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


def _paths(folder: str, rank: int | None, *, must: bool) -> list[str]:
    """Paths of the traces in a folder, without those of other ranks by their names.

    Raises Unreadable: the folder must be there, and is not."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith((".json", ".json.gz")))
    except OSError as error:
        if must:
            raise Unreadable(error.strerror or str(error), where=folder) from error
        return []
    said = ((name, _RANK.search(name)) for name in names)
    own = [name for name, found in said if rank is None or found is None or int(found[1]) == rank]
    return [os.path.join(folder, name) for name in own[:MOST_CAPTURES]]


def _rank(trace: Trace) -> int | None:
    rank = trace.metadata.distributed.get("rank")
    return rank if isinstance(rank, int) and rank >= 0 else None
