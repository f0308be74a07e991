"""Diagnoses recordings in a helper process, and sums each up in a line for the log."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.digest.digested import digest_file
from tb_gpudiag.errors import NothingToRead
from tb_gpudiag.jobs.ranks.members import slim
from tb_gpudiag.jobs.report.job_report import build_jobs
from tb_gpudiag.jobs.report.job_view import heading
from tb_gpudiag.jobs.topics import ids_of
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.diagnosis import only_trace
from tb_gpudiag.report.essentials import without_hints
from tb_gpudiag.service.processes.child_messages import ChildMessage
from tb_gpudiag.service.processes.serving import Reply
from tb_gpudiag.service.settings import settings_from
from tb_gpudiag.training.compact_record import compared_steps, figures_of, record_of
from tb_gpudiag.training.event_records import append_to
from tb_gpudiag.training.helper import HelperAnswer
from tb_gpudiag.wording.format import NO_BREAK, count, one_line, share


def answer(request: dict[str, Any], reply: Reply) -> ChildMessage:
    """Diagnose what the request names: see helper.py."""
    reply.bound_memory(settings_from().memory_limit_bytes // _ranks_here())
    if request["kind"] == "job":
        return diagnose_job(request["paths"]).message()
    return diagnose_recording(request["where"], request).message()


def _ranks_here() -> int:
    """Return how many ranks share the memory of this machine."""
    named = os.environ.get("LOCAL_WORLD_SIZE", "")  # torchrun sets it
    return max(1, int(named)) if named.isdecimal() else 1


def diagnose_recording(path: str, wanted: Mapping[str, Any]) -> HelperAnswer:
    """Diagnose one recording.

    wanted: report, record: whether to return them.
        events, step: the event file to append the record to, "" for none; and its step there.
    Raises TraceError: the file cannot be read.
    """
    report, digest = digest_file(only_trace(path))
    text = _line(report.verdict.sentence, report.findings, "diagnose", report.trace.path)
    steps = compared_steps(digest)
    events, with_record = wanted["events"], wanted["record"]
    record, figures = (record_of(report, steps), figures_of(report)) if with_record or events else (b"", {})
    note = ""
    if events:
        try:
            append_to(events, record, figures, wanted["step"])
        except OSError as error:
            note = f"no record was written to {events}: {error.strerror or error}"
    return HelperAnswer(
        True,
        text,
        _is_worth_a_look(report.findings),
        report.SerializeToString() if wanted["report"] else b"",
        record if with_record else b"",
        figures,
        note,
    )


def diagnose_job(paths: Sequence[str]) -> HelperAnswer:
    """Diagnose the ranks of a job together.

    Raises:
        TraceError: a file cannot be read.
        NothingToRead: the files are not those of one job.
    """

    def digests() -> Iterator[Digest]:
        for path in paths:
            yield slim(digest_file(only_trace(path))[1])

    jobs = build_jobs(digests())
    if not jobs.reports:
        raise NothingToRead(jobs.notes[0] if jobs.notes else "no two files are ranks of one job")
    report = max(jobs.reports, key=lambda report: len(report.ranks))
    sentence = f"{heading(report)}: {report.verdict.sentence}"
    text = _line(sentence, report.findings, "job", os.path.dirname(paths[0]))
    return HelperAnswer(True, text, _is_worth_a_look(report.findings))


# A path is part of a command, which must not be cut off.
MOST_PATH: Final = 4096


def _line(sentence: str, findings: Sequence[pb.Finding], command: str, path: str) -> str:
    """The verdict, the first finding, and the command that shows the rest."""
    more = f"More: gpudiag {command} {shlex.quote(one_line(path, MOST_PATH))}"
    # With plain spaces, because people search logs.
    return f"{sentence} {_findings(findings)} {more}".replace(NO_BREAK, " ")


def _findings(all_findings: Sequence[pb.Finding]) -> str:
    findings = without_hints(all_findings)
    if not findings:
        return "No rule found a problem."
    first = findings[0]
    line = f"{first.rule} {first.name}: {first.title}"
    if first.saving.high_share > 0:
        line += f"; a fix saves up to {share(first.saving.high_share)}"
    if len(findings) > 1:
        line += f"; and {count(len(findings) - 1, 'more finding', 'more findings')}"
    for secret in ids_of("secrets").intersection(finding.rule for finding in findings[1:]):
        line += f", {secret} among them: it contains credentials"  # whoever can read the folder has them
    return f"{line}."


def _is_worth_a_look(findings: Sequence[pb.Finding]) -> bool:
    return any(finding.severity >= pb.Finding.WARNING for finding in findings)
