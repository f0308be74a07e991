"""Why a job hangs: its dumps are read in a process of their own, within limits on time and memory of each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.hang_report import diagnose_hang
from tb_gpudiag.service.processes.child import ChildMessage, error_in, of_error
from tb_gpudiag.service.processes.gate import ask_apart
from tb_gpudiag.service.processes.memory_limit import AnalysisLimit
from tb_gpudiag.service.processes.serving import Reply

MODULE: Final = "tb_gpudiag.service.analyses.hangs"

# A dump that takes longer is left out, so that there is time for the others.
_SHARE_OF_TIME: Final = 0.25


def hang_at(paths: Sequence[str], folder: str = "") -> tuple[pb.HangReport | None, list[GpudiagError]]:
    """Report on the dumps at these paths, if one can be read. Also return what went wrong.

    folder: see open_local. Raises NothingToRead, UsageError, LimitReached, ProcessFailed.
    """
    answered = ask_apart(MODULE, {"where": ", ".join(paths), "paths": list(paths), "folder": folder})
    errors = [error_in(ChildMessage(fields)) for fields in answered.fields["errors"]]
    return pb.HangReport.FromString(answered.content) if answered.fields["found"] else None, errors


def answer(request: dict[str, Any], reply: Reply) -> ChildMessage:
    """Read the dumps, in a process of its own. A dump that takes too much is an error of that dump."""
    os.chdir(request["below"])  # paths may be relative
    limit = AnalysisLimit(request["memory_limit_bytes"], request["time_limit_s"] * _SHARE_OF_TIME)
    found, errors = diagnose_hang(request["paths"], request["folder"], limit.within)
    fields = {"found": found is not None, "errors": [of_error(error).fields for error in errors]}
    return ChildMessage(fields, found.SerializeToString() if found is not None else b"")
