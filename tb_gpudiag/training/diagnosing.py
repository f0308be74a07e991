"""Diagnoses recordings in a helper process, and sums each up: in a line for the log, and in a compact
record."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from tb_gpudiag.digest.build_digest import digest_file
from tb_gpudiag.digest.digest import Digest, numbers, texts
from tb_gpudiag.errors import NothingToRead
from tb_gpudiag.jobs.ranks.members import slim
from tb_gpudiag.jobs.report.job_report import build_jobs
from tb_gpudiag.jobs.report.job_view import heading
from tb_gpudiag.jobs.step_parts import ids_of
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.diagnosis import only_trace
from tb_gpudiag.report.essentials import busiest, without_hints
from tb_gpudiag.service.processes.child import ChildMessage
from tb_gpudiag.service.processes.serving import Reply
from tb_gpudiag.service.settings import settings_from
from tb_gpudiag.training.event_records import append_to
from tb_gpudiag.training.helper import HelperAnswer
from tb_gpudiag.wording.format import NO_BREAK, count, one_line, share

MOST_BYTES: Final = 15 << 10
"""TensorBoard keeps all records of a run in memory. With its metadata, a record stays below 16 KB."""

_STEPS: Final = 64
_PLACES: Final = 3
_NAME: Final = 300  # characters of a text that nothing else bounds


def compared_steps(digest: Digest) -> list[pb.Step]:
    """Return the steps to compare with other recordings: the steady ones, marked or inferred."""
    if digest.about.steps_basis == "none":
        return []
    table = digest.steps.filter(digest.steps.column("steady"))
    start, end = numbers(table, "start_ns"), numbers(table, "end_ns")
    columns = zip(texts(table, "name"), (start / 1e3).tolist(), ((end - start) / 1e3).tolist(), strict=True)
    return [
        pb.Step(name=name, start_us=start_us, duration_us=duration_us)
        for name, start_us, duration_us in columns
    ]


def record_of(report: pb.Report, steps: Sequence[pb.Step]) -> bytes:
    """Return the Report, serialized, with verdict, account, findings, places, these steps and memory floors.

    If it is too large, parts are left out, beginning with what a reader misses least.
    """
    record = pb.Report(
        schema_version=report.schema_version,
        generator=report.generator,
        trace=report.trace,
        verdict=report.verdict,
        devices=report.devices,
        steps=steps[:_STEPS],
        step_time=report.step_time if report.HasField("step_time") else None,
        findings=report.findings,
        unchecked=report.unchecked,
        memory=report.memory,
    )
    if report.HasField("mfu"):
        record.mfu.CopyFrom(report.mfu)
        del record.mfu.steps[:]
    for device in record.devices:
        del device.step_accounts[:]
    for finding in record.findings:
        del finding.ranges[:]
        del finding.places[_PLACES:]
    for memory in record.memory:
        for field in ("sites", "peak_owners", "segments"):
            memory.ClearField(field)
        del memory.floors[:-_STEPS]
    for shorten in _SHORTER:
        content = record.SerializeToString()
        if len(content) <= MOST_BYTES:
            return content
        shorten(record)
    return record.SerializeToString()


def _drop_unchecked(record: pb.Report) -> None:
    del record.unchecked[:]


def _drop_code(record: pb.Report) -> None:
    for finding in record.findings:
        finding.fix.code = ""


def _drop_steps(record: pb.Report) -> None:
    del record.steps[:]
    for memory in record.memory:
        del memory.floors[:-1]


def _drop_evidence(record: pb.Report) -> None:
    for finding in record.findings:
        del finding.evidence[:]
        del finding.places[1:]


def _keep_few(record: pb.Report) -> None:
    del record.findings[8:], record.devices[8:], record.memory[8:]


def _keep_the_verdict(record: pb.Report) -> None:
    """Keep only what is small, however long the names in the trace are."""
    record.CopyFrom(
        pb.Report(
            schema_version=record.schema_version,
            generator=record.generator,
            trace=pb.TraceInfo(
                worker=record.trace.worker[:_NAME], span=record.trace.span, kind=record.trace.kind
            ),
            verdict=pb.Verdict(
                limiter=record.verdict.limiter,
                sentence=record.verdict.sentence[:_NAME],
                busy_share=record.verdict.busy_share,
            ),
            findings=[
                pb.Finding(
                    rule=f.rule, name=f.name, severity=f.severity, title=f.title[:_NAME], cost_us=f.cost_us
                )
                for f in record.findings
            ],
        )
    )


_SHORTER: Final[tuple[Callable[[pb.Report], None], ...]] = (
    _drop_unchecked,
    _drop_code,
    _drop_steps,
    _drop_evidence,
    _keep_few,
    _keep_the_verdict,
)


def figures_of(report: pb.Report) -> dict[str, float]:
    """Return the figures to plot over the training, by tag. Without a GPU or steps, there are fewer.

    gpudiag/busy_share and gpudiag/idle/CAUSE are shares of the step window on the busiest device, gpudiag/mfu
    of its stated peak.
    """
    figures: dict[str, float] = {}
    device = busiest(report)
    if device is not None:
        figures["gpudiag/busy_share"] = 1 - device.window_idle_us / device.window_us
        for cause in device.window_idle_by_cause:
            figures[f"gpudiag/idle/{pb.CauseTime.Cause.Name(cause.cause)}"] = cause.us / device.window_us
    if report.mfu.parts:
        figures["gpudiag/mfu"] = report.mfu.mfu
    if report.step_time.steps:
        figures["gpudiag/step_ms"] = report.step_time.median_us / 1e3
    memory = [one for one in report.memory if one.device >= 0 and not one.relative]
    if memory:
        largest = max(memory, key=lambda one: one.peak_allocated_bytes)
        floors = [floor.bytes for floor in largest.floors if not floor.excused]
        if floors:
            figures["gpudiag/memory_floor_bytes"] = floors[-1]
    return figures


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
