"""Reports for programs: each trace is read in a process of its own, which cannot take the program with it."""

from __future__ import annotations

import os
from typing import Any, Final

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.service.processes.child import ChildMessage
from tb_gpudiag.service.processes.gate import ask_apart
from tb_gpudiag.service.processes.serving import Reply

MODULE: Final = "tb_gpudiag.service.analyses.reports"


def report_at(path: str) -> pb.Report:
    """Return the report on the only trace at a path. Raises as diagnose_path, LimitReached, ProcessFailed."""
    return pb.Report.FromString(ask_apart(MODULE, {"where": path}).content)


def answer(request: dict[str, Any], reply: Reply) -> ChildMessage:
    """Diagnose the trace."""
    from tb_gpudiag.report.diagnosis import diagnose_path  # only here: the program need not import it

    reply.bound_memory(request["memory_limit_bytes"])
    os.chdir(request["below"])  # the path may be relative
    return ChildMessage(content=diagnose_path(request["where"]).SerializeToString())
