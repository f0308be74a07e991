"""Why a job hangs, for commands and programs: its dumps are read in a process of its own, within the limits
on time and memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from tb_gpudiag.errors import GpudiagError, ProcessFailed
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.hang_report import diagnose_hang
from tb_gpudiag.service.processes.child import Child, ChildEnded
from tb_gpudiag.service.processes.child_messages import ChildMessage, error_in, of_error
from tb_gpudiag.service.processes.memory_limit import AnalysisLimit, out_of_time
from tb_gpudiag.service.processes.serving import Reply
from tb_gpudiag.service.settings import command_memory_limit_bytes, settings_from

MODULE: Final = "tb_gpudiag.service.analyses.hangs"

# A dump that takes longer is left out, so that there is time for the others.
_SHARE_OF_TIME: Final = 0.25


def hang_at(paths: Sequence[str]) -> tuple[pb.HangReport | None, list[GpudiagError]]:
    """Report on the dumps at these paths, if one can be read. Also return what went wrong.

    Raises NothingToRead, UsageError, LimitReached, ProcessFailed.
    """
    where, limit_s = ", ".join(paths), settings_from().time_limit_s
    request = {
        "where": where,
        "paths": list(paths),
        "below": os.getcwd(),
        "memory_limit_bytes": command_memory_limit_bytes(),
        "time_limit_s": limit_s * _SHARE_OF_TIME,
    }
    child = Child(MODULE, nice=0)
    try:
        answered = child.ask(request, limit_s)
    except TimeoutError:
        raise out_of_time(limit_s, where) from None
    except ChildEnded as ended:
        raise ProcessFailed(f"the process that read it ended ({ended})", where=where) from ended
    finally:
        child.stop()
    errors = [error_in(ChildMessage(fields)) for fields in answered.fields["errors"]]
    return pb.HangReport.FromString(answered.content) if answered.fields["found"] else None, errors


def answer(request: dict[str, Any], reply: Reply) -> ChildMessage:
    """Read the dumps, in a process of its own. A dump that takes too much is an error of that dump."""
    os.chdir(request["below"])  # paths may be relative
    limit = AnalysisLimit(request["memory_limit_bytes"], request["time_limit_s"])
    found, errors = diagnose_hang(request["paths"], guard=limit.within)
    fields = {"found": found is not None, "errors": [of_error(error).fields for error in errors]}
    return ChildMessage(fields, found.SerializeToString() if found is not None else b"")
