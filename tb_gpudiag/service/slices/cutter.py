"""Cut slices of timelines and of memory: `python -m tb_gpudiag.service.slices.cutter`, a process of its own.

It reads questions (see slice_messages.py) from stdin until that ends, and answers each on stdout. It maps
entries of the cache into memory. If somebody cuts such a file off, only this process dies (SIGBUS).
"""

from __future__ import annotations

import fcntl
import gzip
import os
import select
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path

from google.protobuf.message import Message

from tb_gpudiag.errors import Defect, GpudiagError, LimitReached, Unreadable
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
from tb_gpudiag.service.caches.cache_entry import Arrays, CorruptEntry, read_entry
from tb_gpudiag.service.slices.slice_messages import Answer, Question

# Entries that stay mapped, each with one open file. Their pages belong to the system's cache of files.
MOST_OPEN = 8

# Without questions, the process exits after this long and gives everything back.
IDLE_S = 300.0

# Fast: a slice waits for it. Its text has few distinct characters, so more effort saves little.
GZIP_LEVEL = 1

# Other processes go first: those of TensorBoard's other tabs, and a training job.
NICE = 5

PIPE_BYTES = 1 << 20

Slicer = Callable[..., Message]

SLICERS: Mapping[str, Slicer] = {
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
"""What can be cut, by name."""


class Cutter:
    """Answers questions, and keeps the entries mapped that were asked for last."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[str, int, int], Arrays] = OrderedDict()

    def answer(self, question: Question) -> Answer:
        """Cut a slice. Never raises."""
        try:
            arrays = self._arrays(Path(question.path))
            found = SLICERS[question.kind](arrays, *question.arguments)
            return Answer("ready", gzip.compress(to_json(found).encode("utf-8"), GZIP_LEVEL, mtime=0))
        except (CorruptEntry, FileNotFoundError):
            return Answer("corrupt")
        except GpudiagError as error:
            return Answer.of_error(error)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            return Answer.of_error(
                Unreadable(f"The cached result cannot be read: {reason}.", where=question.path)
            )
        except MemoryError:
            return Answer.of_error(
                LimitReached("There is not enough memory for this part of the timeline.", remedy="Zoom in.")
            )
        except Exception as error:
            return Answer.of_error(Defect.of(error, remedy="Please report this bug."))

    def _arrays(self, path: Path) -> Arrays:
        status = os.lstat(path)
        # An entry never changes: a new version is another file.
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


def main() -> None:
    """Answer questions until stdin ends or none comes for a while."""
    # Libraries may print: that must not get between the answers.
    out = os.dup(1)
    os.dup2(2, 1)
    _hold_whole_answers(out)
    try:
        os.nice(NICE)
    except OSError:  # not allowed here
        pass
    cutter = Cutter()
    questions = os.fdopen(0, "rb", buffering=0)  # unbuffered, so that select sees what is unread
    while select.select([questions], [], [], IDLE_S)[0]:
        line = questions.readline()
        if not line:
            return
        cutter.answer(Question.from_line(line)).write(out)


def _hold_whole_answers(descriptor: int) -> None:
    """Let the pipe hold a whole slice, so that TensorBoard reads it at once."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except (AttributeError, OSError):  # not on this system, or not allowed here
        pass


if __name__ == "__main__":
    main()
