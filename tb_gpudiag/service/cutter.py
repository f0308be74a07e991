"""Cuts slices of timelines and of memory, in a process of its own: see slices.py and processes/.

It maps cache entries into memory. If somebody truncates such a file, only this process dies (SIGBUS).
"""

from __future__ import annotations

import gzip
import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tb_gpudiag.errors import CorruptEntry, LimitReached, Unreadable
from tb_gpudiag.report.slices.slice_table import SLICES, slice_json
from tb_gpudiag.service.caches.cache_entry import Arrays, read_entry
from tb_gpudiag.service.processes.child import ChildMessage
from tb_gpudiag.service.processes.serving import Reply

# Entries that stay mapped, each with one open file. Their memory is the system's file cache.
MOST_OPEN = 8

# The fastest: the page waits. The text has few distinct characters, so more effort would save little.
GZIP_LEVEL = 1


class Cutter:
    """Cuts slices, and keeps the entries mapped that were used last."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[str, int, int], Arrays] = OrderedDict()

    def cut(self, path: str, kind: str, arguments: Sequence[object]) -> bytes:
        """Return a slice of the entry at this path, as gzipped JSON.

        kind, arguments: of SLICES.
        Raises GpudiagError: it cannot be cut.
        """
        try:
            found = SLICES[kind].build(self._arrays(Path(path)), arguments)
            return gzip.compress(slice_json(found).encode("utf-8"), GZIP_LEVEL, mtime=0)
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
