"""Diagnose a trace file and keep its digest, for callers without worker processes or a progress bar."""

from __future__ import annotations

from tb_gpudiag.digest.building.build_digest import build_digest
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.diagnosis import Progress, read_facts
from tb_gpudiag.trace.files.find import TraceFile


def digest_file(file: TraceFile, progress: Progress | None = None) -> tuple[pb.Report, Digest]:
    """Read and diagnose one trace file; return its Report and its Digest. Raises TraceError: the file
    cannot be read."""
    facts = read_facts(file, progress)
    report = build_report(facts, file)
    return report, build_digest(facts, report, file)
