"""SQL queries of commands, each run by a separate process: see querier.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.service.processes.child import ChildMessage, error_in
from tb_gpudiag.service.processes.gate import ask_apart
from tb_gpudiag.trace.files.find import TraceFile

if TYPE_CHECKING:
    from tb_gpudiag.report.diagnosis import Progress  # with the rules, which take long to import

MODULE: Final = "tb_gpudiag.service.queries.querier"


def query_apart(
    files: Sequence[TraceFile], query: str, most_rows: int, progress: Progress
) -> tuple[pa.Table, str, list[GpudiagError]]:
    """Run a command's query: (rows, a note or "", what could not be read). Raises GpudiagError."""
    request = {
        "where": files[0].path if len(files) == 1 else "",
        "files": [asdict(file) for file in files],
        "query": query,
        "most_rows": most_rows,
    }
    answer = ask_apart(MODULE, request, progress)
    problems = [error_in(ChildMessage(fields)) for fields in answer.fields["problems"]]
    with pa.ipc.open_stream(answer.content) as reader:
        return reader.read_all(), answer.fields["note"], problems
