"""Build the History of report.proto: points, changes and drifts of each rank of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Final

import numpy as np

from tb_gpudiag.digest.digest import Digest, numbers, texts
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.history.change_points import SIGNIFICANCE, change_points
from tb_gpudiag.jobs.history.recordings import (
    MemoryGrowth,
    RankSeries,
    RunRecording,
    find_growth,
    find_series,
    is_cpu,
)
from tb_gpudiag.jobs.step_parts import change_of_part, part_noun
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.essentials import without_hints
from tb_gpudiag.wording.format import count, figures, in_quotes, one_line, share, size_bytes, time_ns, time_us

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
    # The growing allocation sites of the last recording.
    table = last.sites
    rows = zip(
        texts(table, "device"),
        texts(table, "operator"),
        texts(table, "place"),
        numbers(table, "bytes_per_step").tolist(),
        numbers(table, "bytes").tolist(),
        strict=True,
    )
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
        sites=[
            pb.MemorySite(
                operator=one_line(operator),
                place=pb.Place(function=one_line(place)),
                bytes_per_step=per_step,
                bytes=size,
            )
            for on, operator, place, per_step, size in rows
            if on == growth.device
        ][:_MOST_SITES],
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


# Runs of the same job differ by 1% to 2%. Nobody asks why a step takes less than this longer.
LEAST_STEP: Final = 0.05
LEAST_SHARE: Final = 0.05
"""Of the GPU's busy share, and of a part of the step."""

LEAST_MEMORY: Final = 0.05

# A finding belongs to a stretch of recordings if most of them have it.
_MOST_OF_THEM: Final = 0.5
_CAUSES_KEPT: Final = 8
_CAUSES_NAMED: Final = 3
_NAMED_SHARE: Final = 0.2


@dataclass(frozen=True)
class RunChange:
    """A change at recordings[point], between recordings[start:point] and recordings[point:end]. gradual: or
    bit by bit, over all of them. part: whose share of the step changed, where `what` is part."""

    what: str  # step, busy, memory, part
    start: int
    point: int
    end: int
    before: float
    after: float
    gradual: bool = False
    part: str = ""


_ORDER: Final = ("step", "busy", "memory", "part")


def find_changes(series: RankSeries, growing: Collection[str]) -> list[RunChange]:
    """Find changes of the step time, the busy share, the memory floor and what takes the step, in time order.

    growing: devices whose memory drifts, so that a change of the floor says nothing.
    """
    recordings = series.recordings
    steps = {i: recording.step_ns for i, recording in enumerate(recordings) if recording.step_ns > 0}
    busy = {
        i: recording.digest.about.busy_share
        for i, recording in enumerate(recordings)
        if recording.side.on_gpu
    }
    found = _changes("step", steps, LEAST_STEP, relative=True)
    # What changes the step time changes shares, too, and one share others: that is one change. Another load
    # of the machine moves shares less than times, so they tell of changes that the noise of the times hides.
    for change in [*_changes("busy", busy, LEAST_SHARE), *_part_changes(recordings)]:
        if not any(_together(change, other) for other in found):
            found.append(change)
    found += _memory_changes(series, growing)
    return sorted(found, key=lambda change: (change.point, _ORDER.index(change.what)))


def _part_changes(recordings: Sequence[RunRecording]) -> list[RunChange]:
    """Find changes of the shares of a step that its parts take, largest first."""
    shares: dict[int, dict[str, float]] = {}
    for i, recording in enumerate(recordings):
        part_ns = recording.side.part_ns if recording.has_steps else {}
        if total_ns := sum(part_ns.values()):
            shares[i] = {part: ns / total_ns for part, ns in part_ns.items()}
    parts = dict.fromkeys(part for each in shares.values() for part in each)
    found = [
        replace(change, part=part)
        for part in parts
        for change in _changes(
            "part",
            {i: each.get(part, 0.0) for i, each in shares.items()},
            LEAST_SHARE,
            significance=SIGNIFICANCE / len(parts),
        )
    ]
    return sorted(found, key=lambda change: -abs(change.after - change.before))


def _memory_changes(series: RankSeries, growing: Collection[str]) -> list[RunChange]:
    device = series.devices[0] if series.devices else ""
    # A profiler counts CPU memory only while it runs: floors of two recordings have different zeros.
    if not device or device in growing or is_cpu(device):
        return []
    floors = {i: recording.floor(device) for i, recording in enumerate(series.recordings)}
    known = {i: floor for i, floor in floors.items() if floor > 0}
    return _changes("memory", known, LEAST_MEMORY, relative=True)


def _together(one: RunChange, other: RunChange) -> bool:
    """Whether two changes are at the same place, as far as that is known."""
    (low, high), (first, last) = _where(one), _where(other)
    return low <= last + 1 and first <= high + 1


def _where(change: RunChange) -> tuple[int, int]:
    return (change.start, change.end) if change.gradual else (change.point, change.point)


def _changes(
    what: str,
    figures: Mapping[int, float],
    least: float,
    *,
    relative: bool = False,
    significance: float = SIGNIFICANCE,
) -> list[RunChange]:
    """Find changes of figures. figures: by the index of their recording."""
    index = list(figures)
    numbers = np.array(list(figures.values()), np.float64)
    compared = np.log(numbers) if relative else numbers
    return [
        RunChange(
            what,
            index[each.start],
            index[each.point],
            index[each.end - 1] + 1,
            float(np.median(numbers[each.start : each.point])),
            float(np.median(numbers[each.point : each.end])),
            each.gradual,
        )
        for each in change_points(compared, float(np.log1p(least)) if relative else least, significance)
    ]


def describe_change(recordings: Sequence[RunRecording], change: RunChange) -> pb.Change:
    """Say what changed, and what else is different after it."""
    before, after = recordings[change.start : change.point], recordings[change.point : change.end]
    causes = _causes(before, after)
    scale = 1e-3 if change.what == "step" else 1.0
    return pb.Change(
        point=change.point,
        what=change.what,
        before=change.before * scale,
        after=change.after * scale,
        unit={"step": "us", "busy": "share", "memory": "bytes", "part": "share"}[change.what],
        gradual=change.gradual,
        sentence=_change_sentence(change, causes, before, after),
        causes=[pb.CauseTime(cause=part, us=moved * 1e-3) for part, moved in causes[:_CAUSES_KEPT]],
    )


def _causes(before: Sequence[RunRecording], after: Sequence[RunRecording]) -> list[tuple[str, float]]:
    """Return the differences of the parts of a step in ns, largest first."""
    of_before, of_after = _mean_parts(before), _mean_parts(after)
    moved = {
        part: of_after.get(part, 0.0) - of_before.get(part, 0.0)
        for part in dict.fromkeys([*of_before, *of_after])
    }
    return sorted(((part, ns) for part, ns in moved.items() if ns), key=lambda item: -abs(item[1]))


def _mean_parts(recordings: Sequence[RunRecording]) -> dict[str, float]:
    used = [recording.side.part_ns for recording in recordings if recording.has_steps]
    parts = dict.fromkeys(part for each in used for part in each)
    return {part: sum(each.get(part, 0.0) for each in used) / len(used) for part in parts}


def _change_sentence(
    change: RunChange,
    causes: Sequence[tuple[str, float]],
    before: Sequence[RunRecording],
    after: Sequence[RunRecording],
) -> str:
    largest = abs(causes[0][1]) if causes else 0.0
    named = [each for each in causes[:_CAUSES_NAMED] if abs(each[1]) >= _NAMED_SHARE * largest]
    parts = ", ".join(change_of_part(part, moved) for part, moved in named)
    new, gone = _findings(before, after), _findings(after, before)
    since = f"Since recording {change.point + 1}"
    if change.gradual:
        since += f", or gradually from recording {change.start + 1} to {change.end},"
    return (
        f"{since} {_what(change)}{f': {parts} per step' if parts else ''}."
        f"{f' New findings: {_list(new)}.' if new else ''}{f' Gone findings: {_list(gone)}.' if gone else ''}"
    )


def _what(change: RunChange) -> str:
    if change.what == "busy":
        return f"the GPU is busy {share(change.after)} of the time instead of {share(change.before)}"
    if change.what == "part":
        shares = share(change.after), share(change.before)
        return f"{part_noun(change.part)} takes {shares[0]} of a step instead of {shares[1]}"
    moved = share(abs(change.after - change.before), change.before)
    moved += " more" if change.after > change.before else " less"
    if change.what == "memory":
        sizes = size_bytes(change.after), size_bytes(change.before)
        return f"memory has a floor of {sizes[0]} instead of {sizes[1]}, {moved}"
    return f"a step takes {time_ns(change.after)} instead of {time_ns(change.before)}, {moved}"


def _findings(without: Sequence[RunRecording], having: Sequence[RunRecording]) -> list[tuple[str, str]]:
    """Return the rules that found something in most recordings of `having`, and not in most of `without`."""
    names = {f.rule: f.name for recording in having for f in recording.digest.findings}

    def usual(rule: str, recordings: Sequence[RunRecording]) -> bool:
        return sum(rule in recording.rules for recording in recordings) > _MOST_OF_THEM * len(recordings)

    return [(rule, names[rule]) for rule in sorted(names) if usual(rule, having) and not usual(rule, without)]


def _list(rules: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{rule} {name}" for rule, name in rules)
