"""SQL queries of commands, each run by a separate process: see querier.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tb_gpudiag.errors import GpudiagError, ProcessFailed
from tb_gpudiag.service.processes.child import Child, ChildEnded
from tb_gpudiag.service.processes.child_messages import ChildMessage, MessageKind, error_in
from tb_gpudiag.service.processes.memory_limit import out_of_time
from tb_gpudiag.service.settings import command_memory_limit_bytes, settings_from
from tb_gpudiag.trace.files.find import TraceFile

if TYPE_CHECKING:
    from tb_gpudiag.report.diagnosis import Progress  # with the rules, which take long to import

MODULE: Final = "tb_gpudiag.service.queries.querier"


def query_apart(
    files: Sequence[TraceFile], query: str, most_rows: int, progress: Progress
) -> tuple[pa.Table, str, list[GpudiagError]]:
    """Run a command's query: (rows, a note or "", what could not be read). Raises GpudiagError."""
    where, limit_s = files[0].path if len(files) == 1 else "", settings_from().time_limit_s
    request = {
        "where": where,
        "files": [asdict(file) for file in files],
        "query": query,
        "most_rows": most_rows,
        "memory_limit_bytes": command_memory_limit_bytes(),
    }
    child = Child(MODULE, nice=0)
    answer = ChildMessage()
    try:
        for message in child.messages(request, limit_s):
            if message.kind is MessageKind.PROGRESS:
                progress(message.fields["share"], message.fields["stage"])
            answer = message
    except TimeoutError:
        raise out_of_time(limit_s, where) from None
    except ChildEnded as ended:
        raise ProcessFailed(
            f"The process that runs the query ended ({ended}).",
            where=where,
            remedy="Select fewer rows, or check whether this machine is out of memory.",
        ) from ended
    finally:
        child.stop()
    problems = [error_in(ChildMessage(fields)) for fields in answer.fields["problems"]]
    with pa.ipc.open_stream(answer.content) as reader:
        return reader.read_all(), answer.fields["note"], problems
