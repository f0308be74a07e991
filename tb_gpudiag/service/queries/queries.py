"""SQL queries of pages and commands: run by a separate process (see querier.py), one at a time.

No request waits for a query: it finds the answer, or learns that the query runs. The process keeps the
tables of the trace that was asked about last, and exits when it is no longer needed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tb_gpudiag.errors import GpudiagError, LimitReached, ProcessFailed
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.service.analyses.pending import Pending
from tb_gpudiag.service.processes.child import Child, ChildEnded
from tb_gpudiag.service.processes.child_messages import ChildMessage, MessageKind, error_in
from tb_gpudiag.service.processes.memory_limit import out_of_time
from tb_gpudiag.service.settings import Settings, command_memory_limit_bytes
from tb_gpudiag.trace.files.find import TraceFile

if TYPE_CHECKING:
    from tb_gpudiag.report.diagnosis import Progress  # with the rules, which take long to import

MODULE: Final = "tb_gpudiag.service.queries.querier"

ROWS_OF_PAGE: Final = 500
"""More rows are not read on a page. The command writes them to a file."""

# Answers that pages have not fetched yet, or fetch again: each has at most a few megabytes.
_KEPT: Final = 16

# TensorBoard's other tabs and a training job go first.
_NICE: Final = 5

# The tables of a large trace take gigabytes.
_IDLE_S: Final = 120.0


@dataclass(frozen=True)
class SqlRequest:
    """A query over traces."""

    files: tuple[TraceFile, ...]
    query: str
    most_rows: int

    def messages(self, child: Child, memory_limit_bytes: int, *, page: bool) -> Iterator[ChildMessage]:
        """Ask the process. Raises GpudiagError."""
        request = {
            "where": self.files[0].path if len(self.files) == 1 else "",
            "files": [asdict(file) for file in self.files],
            "query": self.query,
            "most_rows": self.most_rows,
            "memory_limit_bytes": memory_limit_bytes,
            "page": page,
        }
        try:
            yield from child.messages(request)
        except ChildEnded as ended:
            raise ProcessFailed(
                f"The process that runs the query ended ({ended}).",
                where=str(request["where"]),
                remedy="Select fewer rows, or check whether this machine is out of memory.",
            ) from ended


class Queries:
    """Runs the queries of pages, and keeps the last answers."""

    def __init__(self, settings: Settings) -> None:
        self._memory_limit_bytes = settings.memory_limit_bytes
        self._time_limit_s = settings.time_limit_s
        self._child = Child(MODULE, nice=_NICE, idle_s=_IDLE_S, ends_with_thread=False)
        self._lock = threading.Lock()
        self._running: SqlRequest | None = None
        self._pending = Pending("running")
        self._answers: OrderedDict[SqlRequest, bytes | GpudiagError] = OrderedDict()

    def ask(self, file: TraceFile, query: str) -> bytes | Pending:
        """Return the SqlState of a query as gzipped JSON, or start it. An error is returned once: whoever
        asks again tries again."""
        request = SqlRequest((file,), query, ROWS_OF_PAGE)
        with self._lock:
            found = self._answers.get(request)
            if isinstance(found, GpudiagError):
                del self._answers[request]
                return Pending("failed", error=found)
            if found is not None:
                self._answers.move_to_end(request)
                return found
            if self._running == request:
                return self._pending
            if self._running is not None:
                return Pending("queued", stage="Another query runs.")
            self._running, self._pending = request, Pending("running", stage="reading")
        threading.Thread(target=self._run, args=(request,), name="gpudiag-sql", daemon=True).start()
        return self._pending

    def close(self) -> None:
        """End the process, and start none again."""
        self._child.close()

    def _run(self, request: SqlRequest) -> None:
        found: bytes | GpudiagError
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._child.kill()

        timer = threading.Timer(self._time_limit_s, stop)
        timer.daemon = True
        timer.start()
        try:
            found = self._answer(request)
        except GpudiagError as error:
            found = out_of_time(self._time_limit_s, request.files[0].path) if late.is_set() else error
        except MemoryError:
            found = LimitReached("There is not enough memory for the answer.", remedy="Select fewer rows.")
        finally:
            timer.cancel()
        with self._lock:
            self._running = None
            self._answers[request] = found
            while len(self._answers) > _KEPT:
                self._answers.popitem(last=False)

    def _answer(self, request: SqlRequest) -> bytes:
        content = b""
        for message in request.messages(self._child, self._memory_limit_bytes, page=True):
            if message.kind is MessageKind.PROGRESS:
                share, stage = message.fields["share"], message.fields["stage"]
                self._pending = replace(self._pending, progress=share, stage=stage)
            content = message.content
        return content


def query_apart(
    files: Sequence[TraceFile], query: str, most_rows: int, progress: Progress
) -> tuple[pa.Table, str, list[GpudiagError]]:
    """Run a command's query: (rows, a note or "", what could not be read). Raises GpudiagError."""
    child = Child(MODULE, nice=0)
    answer = ChildMessage()
    try:
        request = SqlRequest(tuple(files), query, most_rows)
        for message in request.messages(child, command_memory_limit_bytes(), page=False):
            if message.kind is MessageKind.PROGRESS:
                progress(message.fields["share"], message.fields["stage"])
            answer = message
    finally:
        child.stop()
    problems = [error_in(ChildMessage(fields)) for fields in answer.fields["problems"]]
    with pa.ipc.open_stream(answer.content) as reader:
        return reader.read_all(), answer.fields["note"], problems
