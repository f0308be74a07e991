"""SQL queries of commands: run by a separate process (see querier.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import pyarrow as pa

from tb_gpudiag.errors import GpudiagError, ProcessFailed
from tb_gpudiag.report.diagnosis import Progress
from tb_gpudiag.service.processes.child import Child, ChildEnded
from tb_gpudiag.service.processes.child_messages import ChildMessage, MessageKind, error_in
from tb_gpudiag.service.settings import command_memory_limit_bytes
from tb_gpudiag.trace.files.find import TraceFile

MODULE: Final = "tb_gpudiag.service.queries.querier"


@dataclass(frozen=True)
class SqlRequest:
    """A query over traces."""

    files: tuple[TraceFile, ...]
    query: str
    most_rows: int

    def messages(self, child: Child, memory_limit_bytes: int) -> Iterator[ChildMessage]:
        """Ask the process. Raises GpudiagError."""
        request = {
            "where": self.files[0].path if len(self.files) == 1 else "",
            "files": [asdict(file) for file in self.files],
            "query": self.query,
            "most_rows": self.most_rows,
            "memory_limit_bytes": memory_limit_bytes,
        }
        try:
            yield from child.messages(request)
        except ChildEnded as ended:
            raise ProcessFailed(
                f"The process that runs the query ended ({ended}).",
                where=str(request["where"]),
                remedy="Select fewer rows, or check whether this machine is out of memory.",
            ) from ended


def query_apart(
    files: Sequence[TraceFile], query: str, most_rows: int, progress: Progress
) -> tuple[pa.Table, str, list[GpudiagError]]:
    """Run a command's query: (rows, a note or "", what could not be read). Raises GpudiagError."""
    child = Child(MODULE, nice=0)
    answer = ChildMessage()
    try:
        request = SqlRequest(tuple(files), query, most_rows)
        for message in request.messages(child, command_memory_limit_bytes()):
            if message.kind is MessageKind.PROGRESS:
                progress(message.fields["share"], message.fields["stage"])
            answer = message
    finally:
        child.stop()
    problems = [error_in(ChildMessage(fields)) for fields in answer.fields["problems"]]
    with pa.ipc.open_stream(answer.content) as reader:
        return reader.read_all(), answer.fields["note"], problems
