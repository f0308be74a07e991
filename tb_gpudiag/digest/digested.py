"""Diagnose trace files and keep their digests, for callers without worker processes or a progress bar."""

from __future__ import annotations

from tb_gpudiag.digest.building.build_digest import build_digest
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.digest.digest_files import read_digest
from tb_gpudiag.digest.find_digests import SUFFIX, find_digests
from tb_gpudiag.errors import LinksNotFollowed
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.diagnosis import Progress, read_facts
from tb_gpudiag.trace.files.find import TraceFile, find_traces


def digest_file(file: TraceFile, progress: Progress | None = None) -> tuple[pb.Report, Digest]:
    """Read and diagnose one trace file; return its Report and its Digest. Raises TraceError: the file
    cannot be read."""
    facts = read_facts(file, progress)
    report = build_report(facts, file)
    return report, build_digest(facts, report, file)


def digests_at(path: str) -> list[Digest]:
    """Return the digests at a path: read from its digest files, and made of its traces one by one. Raises
    TraceError: a file cannot be read."""
    digests = [read_digest(name) for name in find_digests(path)]
    if path.endswith(SUFFIX):
        return digests
    found = find_traces(path)
    problems = [problem for problem in found.problems if not isinstance(problem, LinksNotFollowed)]
    if problems and not digests:
        raise problems[0]
    known = {digest.about.id for digest in digests}
    return digests + [digest_file(file)[1] for file in found.files if file.identity not in known]
