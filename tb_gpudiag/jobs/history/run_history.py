"""Build the History of report.proto: points, changes and drifts of each rank of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import Final

from tb_gpudiag.digest.digest import Digest, numbers, texts
from tb_gpudiag.jobs.history.changes import describe_change, find_changes
from tb_gpudiag.jobs.history.drift import MemoryGrowth, find_growth
from tb_gpudiag.jobs.history.recordings import RankSeries, RunRecording, find_series
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.essentials import without_hints
from tb_gpudiag.wording.format import count, figures, in_quotes, one_line, size_bytes, time_us

SCHEMA_VERSION: Final = 1
MOST_RANKS: Final = 8
"""Ranks of a run with a History each. All ranks of a job have similar ones, because they keep in step."""

_MOST_SITES: Final = 10
MOST_REASONS: Final = 8
# A minute: over less, no rate per hour is known.
_LEAST_HOURS: Final = 1 / 60
_NS_US: Final = 1e-3
_NS_S: Final = 1e-9


def histories(digests: Iterable[Digest]) -> list[pb.History]:
    """Return a History for each rank of each run, in the order of runs and ranks."""
    found = []
    for _, group in groupby(find_series(digests), key=lambda series: series.run):
        of_run = list(group)
        shown = [_history(series) for series in of_run[:MOST_RANKS]]
        if len(of_run) > MOST_RANKS:
            shown[0].notes.append(
                f"The run has {count(len(of_run), 'rank')}; the first {MOST_RANKS} are shown."
            )
        found += shown
    return found


def _history(series: RankSeries) -> pb.History:
    recordings = series.recordings
    growths = [growth for device in series.devices if (growth := _growth(recordings, device)) is not None]
    return pb.History(
        schema_version=SCHEMA_VERSION,
        run=one_line(series.run),
        points=[_point(series, recording) for recording in recordings],
        changes=[
            describe_change(recordings, change)
            for change in find_changes(series, {growth.device for growth in growths})
        ],
        drifts=[_drift(growth) for growth in growths],
        notes=_notes(recordings),
    )


def _growth(recordings: Sequence[RunRecording], device: str) -> MemoryGrowth | None:
    """Find growth in the last process that grows: the memory of a restarted job starts from zero."""
    found = None
    for _, group in groupby(recordings, key=lambda recording: recording.process):
        found = find_growth(list(group), device) or found
    return found


def _point(series: RankSeries, recording: RunRecording) -> pb.HistoryPoint:
    about, side = recording.digest.about, recording.side
    device = series.devices[0] if series.devices else ""
    memory = recording.memory(device)
    findings = recording.digest.findings
    first = next(iter(without_hints(findings)), pb.Finding())
    return pb.HistoryPoint(
        id=about.id,
        worker=one_line(about.worker),
        span=one_line(about.span),
        time_s=recording.time_ns * _NS_S,
        rank=about.rank,
        step_us=recording.step_ns * _NS_US,
        low_step_us=recording.step_time.low * _NS_US,
        high_step_us=recording.step_time.high * _NS_US,
        steps=len(recording.side.samples_ns) if recording.has_steps else 0,
        busy_share=about.busy_share,
        shares=[
            pb.CauseTime(cause=part, us=time_ns * _NS_US)
            for part, time_ns in side.part_ns.items()
            if time_ns and recording.has_steps
        ],
        floor_bytes=recording.floor(device),
        peak_bytes=memory.peak_allocated_bytes if memory is not None else 0,
        limiter=about.limiter,
        rules=recording.rules,
        saving_us=first.saving.high_per_step_us,
        title=one_line(first.title),
        device_name=one_line(about.device_name),
    )


def _drift(growth: MemoryGrowth) -> pb.Drift:
    last = growth.recordings[-1].digest
    return pb.Drift(
        device=one_line(growth.device),
        bytes_per_hour=growth.per_hour,
        low_bytes_per_hour=growth.low_per_hour,
        high_bytes_per_hour=growth.high_per_hour,
        bytes_per_step=growth.per_step,
        hours=growth.hours,
        total_bytes=growth.total_bytes,
        hours_until_full=growth.hours_until_full,
        sentence=_sentence(growth),
        sites=_sites(last, growth.device),
        points=len(growth.recordings),
    )


def _sentence(growth: MemoryGrowth) -> str:
    device, recordings = one_line(growth.device), count(len(growth.recordings), "recording")
    if growth.hours < _LEAST_HOURS and growth.per_step:
        per_step = size_bytes(growth.per_step)
        return f"{device} memory grows by {per_step} per step ({recordings}; too short for a rate per hour)."
    per_step = f" ({size_bytes(growth.per_step)} per step)" if growth.per_step else ""
    low, high = size_bytes(growth.low_per_hour), size_bytes(growth.high_per_hour)
    text = (
        f"{device} memory grows by {size_bytes(growth.per_hour)} per hour{per_step} over {recordings} in "
        f"{_hours(growth.hours)}{f'; 95% confidence: {low} to {high} per hour' if low != high else ''}."
    )
    if growth.hours_until_full:
        text += f" At this rate it is full {_hours(growth.hours_until_full)} after the last recording."
    return text


def _hours(hours: float) -> str:
    """Return a duration: in hours if it has any."""
    return f"{figures(hours)} hours" if hours >= 1 else time_us(hours * 3.6e9)


def _sites(digest: Digest, device: str) -> list[pb.MemorySite]:
    """Return the growing allocation sites of the last recording."""
    table = digest.sites
    rows = zip(
        texts(table, "device"),
        texts(table, "operator"),
        texts(table, "place"),
        numbers(table, "bytes_per_step").tolist(),
        numbers(table, "bytes").tolist(),
        strict=True,
    )
    return [
        pb.MemorySite(
            operator=one_line(operator),
            place=pb.Place(function=one_line(place)),
            bytes_per_step=per_step,
            bytes=size,
        )
        for on, operator, place, per_step, size in rows
        if on == device
    ][:_MOST_SITES]


def _notes(recordings: Sequence[RunRecording]) -> list[str]:
    notes = []
    if not all(recording.time_ns for recording in recordings):
        notes.append(
            "Some recordings do not say when they were made. They are first, in the order of their names."
        )
    without = sum(not recording.has_steps for recording in recordings)
    if without:
        notes.append(f"{count(without, 'recording')} without steps: no step time.")
    notes += [
        f"{recording.digest.about.worker}, {recording.digest.about.span}: recorded because "
        f"{one_line(recording.digest.about.reason)}."
        for recording in recordings
        if recording.digest.about.reason
    ][-MOST_REASONS:]
    starts = len(list(groupby(recordings, key=lambda recording: recording.process)))
    if starts > 1:
        notes.append(
            f"{count(starts, 'process', 'processes')} made the recordings: the job was started again."
        )
    for before, after in pairwise(recordings):
        names = before.digest.about.device_name, after.digest.about.device_name
        if all(names) and names[0] != names[1]:
            notes.append(f"The GPU changed from {in_quotes(names[0])} to {in_quotes(names[1])}.")
    return list(dict.fromkeys(notes))
