"""What a trace is called, by its path; and reports on files that are no trace."""

from __future__ import annotations

from google.protobuf.message import Message

from tb_gpudiag.arrays import NONE
from tb_gpudiag.errors import without_url_secrets
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import GENERATOR, SCHEMA_VERSION
from tb_gpudiag.trace.files.find import TraceFile
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.wording.format import one_line

PATH_LIMIT = 4_000

_HOST_AND_PID = lazy_re(r"(.+)_\d+")


def name_file(message: pb.TraceInfo, file: TraceFile) -> None:
    """Set what the file's path says of the trace."""
    host = _HOST_AND_PID.fullmatch(file.worker)
    message.run = one_line(file.run)
    message.worker = one_line(file.worker)
    message.span = one_line(file.span)
    message.path = one_line(without_url_secrets(file.path), PATH_LIMIT)
    message.host = one_line(host[1]) if host else ""


def report_on_file(file: TraceFile, verdict: pb.Verdict, **found: Message) -> pb.Report:
    """Make the report on dumps or step clocks, which has what was found and nothing else."""
    report = pb.Report(
        schema_version=SCHEMA_VERSION,
        generator=GENERATOR,
        trace=pb.TraceInfo(kind=file.kind, rank=NONE),
        verdict=verdict,
        **found,  # type: ignore[arg-type]
    )
    name_file(report.trace, file)
    return report
