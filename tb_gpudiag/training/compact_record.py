"""The compact record of a recording: a Report cut to a few kilobytes. Also the figures that are plotted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tb_gpudiag.digest.digest import Digest, numbers, texts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.essentials import busiest

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
        del record.mfu.operators[:], record.mfu.steps[:]
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
