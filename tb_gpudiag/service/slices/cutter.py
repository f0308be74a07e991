"""Cuts slices of timelines and of memory, in a process of its own: see slices.py and processes/.

It maps cache entries into memory. If somebody truncates such a file, only this process dies (SIGBUS).
"""

from __future__ import annotations

import gzip
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from tb_gpudiag.errors import CorruptEntry, LimitReached, Unreadable
from tb_gpudiag.report.slices.memory_slice import slice_memory
from tb_gpudiag.report.slices.memory_state import slice_memory_state
from tb_gpudiag.report.slices.operators.call_details import slice_call_details
from tb_gpudiag.report.slices.operators.call_tree_slice import slice_call_tree
from tb_gpudiag.report.slices.operators.kernel_table import slice_kernels
from tb_gpudiag.report.slices.operators.operator_table import slice_operators
from tb_gpudiag.report.slices.operators.roofline_plot import slice_roofline
from tb_gpudiag.report.slices.segment_map import slice_segments
from tb_gpudiag.report.slices.timeline import slice_timeline
from tb_gpudiag.report.slices.timeline_chains import gap_chain
from tb_gpudiag.report.slices.timeline_events import event_at, event_details
from tb_gpudiag.report.slices.timeline_range import range_statistics
from tb_gpudiag.report.slices.timeline_search import find_events
from tb_gpudiag.report.wire import to_json
from tb_gpudiag.service.caches.cache_entry import Arrays, read_entry
from tb_gpudiag.service.processes.child_messages import ChildMessage
from tb_gpudiag.service.processes.serving import Reply

# Entries that stay mapped, each with one open file. Their memory is the system's file cache.
MOST_OPEN = 8

# The fastest: the page waits. The text has few distinct characters, so more effort would save little.
GZIP_LEVEL = 1

SLICERS: Mapping[str, Callable[..., Message]] = {
    "timeline": slice_timeline,
    "memory": slice_memory,
    "gap": gap_chain,
    "find": find_events,
    "event": event_details,
    "event_at": event_at,
    "range": range_statistics,
    "operators": slice_operators,
    "kernels": slice_kernels,
    "calls": slice_call_details,
    "callTree": slice_call_tree,
    "roofline": slice_roofline,
    "memoryState": slice_memory_state,
    "segments": slice_segments,
}
"""Functions that cut slices, by the name of the slice."""


class Cutter:
    """Cuts slices, and keeps the entries mapped that were used last."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[str, int, int], Arrays] = OrderedDict()

    def cut(self, path: str, kind: str, arguments: Sequence[object]) -> bytes:
        """Return a slice of the entry at this path, as gzipped JSON.

        kind, arguments: a function in SLICERS, and its arguments.

        Raises:
            GpudiagError: it cannot be cut.
        """
        try:
            found = SLICERS[kind](self._arrays(Path(path)), *arguments)
            return gzip.compress(to_json(found).encode("utf-8"), GZIP_LEVEL, mtime=0)
        except FileNotFoundError as error:
            raise CorruptEntry.at(path) from error
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise Unreadable(f"The cached result cannot be read: {reason}.", where=path) from error
        except MemoryError as error:
            raise LimitReached(
                "There is not enough memory for this part of the timeline.", remedy="Zoom in."
            ) from error

    def _arrays(self, path: Path) -> Arrays:
        status = os.lstat(path)
        # An entry file never changes: a new version is another file.
        key = (str(path), status.st_ino, status.st_size)
        arrays = self._open.get(key)
        if arrays is None:
            entry = read_entry(path)
            if entry is None:
                raise FileNotFoundError(path)
            arrays = self._open[key] = entry.arrays()
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(key)
        return arrays


_cutter = Cutter()


def answer(request: dict[str, Any], _reply: Reply) -> ChildMessage:
    """Cut a slice: see Slices."""
    return ChildMessage(content=_cutter.cut(request["where"], request["kind"], request["arguments"]))
