"""Changes over the recordings of a run, and what else changed there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.history.change_points import change_points
from tb_gpudiag.jobs.history.recordings import RankSeries, RunRecording, is_cpu
from tb_gpudiag.jobs.part_words import change_of_part
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.wording.format import share, size_bytes, time_ns

# Runs of the same job differ by 1% to 2%. Nobody asks why a step takes less than this longer.
LEAST_STEP: Final = 0.05
LEAST_BUSY: Final = 0.05
LEAST_MEMORY: Final = 0.05

# A finding belongs to a stretch of recordings if most of them have it.
_MOST_OF_THEM: Final = 0.5
_CAUSES_KEPT: Final = 8
_CAUSES_NAMED: Final = 3
_NAMED_SHARE: Final = 0.2


@dataclass(frozen=True)
class RunChange:
    """A change at recordings[point], between recordings[start:point] and recordings[point:end]."""

    what: str  # step, busy, memory
    start: int
    point: int
    end: int
    before: float
    after: float


def find_changes(series: RankSeries, growing: Collection[str]) -> list[RunChange]:
    """Find changes of the step time, the busy share and the memory floor, in time order.

    growing: devices whose memory drifts, so that a change of the floor says nothing.
    """
    recordings = series.recordings
    steps = {i: recording.step_ns for i, recording in enumerate(recordings) if recording.step_ns > 0}
    found = _changes("step", steps, LEAST_STEP, relative=True)
    at = {change.point for change in found}
    busy = {
        i: recording.digest.about.busy_share
        for i, recording in enumerate(recordings)
        if recording.side.on_gpu
    }
    # A change of the step time changes the busy share, too: that is one change.
    found += [each for each in _changes("busy", busy, LEAST_BUSY) if not _near(each.point, at)]
    found += _memory_changes(series, growing)
    return sorted(found, key=lambda change: (change.point, ("step", "busy", "memory").index(change.what)))


def _memory_changes(series: RankSeries, growing: Collection[str]) -> list[RunChange]:
    device = series.devices[0] if series.devices else ""
    # A profiler counts CPU memory only while it runs: floors of two recordings have different zeros.
    if not device or device in growing or is_cpu(device):
        return []
    floors = {i: recording.floor(device) for i, recording in enumerate(series.recordings)}
    known = {i: floor for i, floor in floors.items() if floor > 0}
    return _changes("memory", known, LEAST_MEMORY, relative=True)


def _near(point: int, others: Collection[int]) -> bool:
    return any(abs(point - other) <= 1 for other in others)


def _changes(
    what: str, figures: Mapping[int, float], least: float, *, relative: bool = False
) -> list[RunChange]:
    """Find changes of figures. figures: by the index of their recording."""
    index = list(figures)
    numbers = np.array(list(figures.values()), np.float64)
    compared = np.log(numbers) if relative else numbers
    points = change_points(compared, float(np.log1p(least)) if relative else least)
    edges = [0, *points, len(index)]
    return [
        RunChange(
            what,
            index[first],
            index[point],
            index[last - 1] + 1,
            float(np.median(numbers[first:point])),
            float(np.median(numbers[point:last])),
        )
        for first, point, last in zip(edges, edges[1:], edges[2:], strict=False)
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
        unit={"step": "us", "busy": "share", "memory": "bytes"}[change.what],
        sentence=_sentence(change, causes, before, after),
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


def _sentence(
    change: RunChange,
    causes: Sequence[tuple[str, float]],
    before: Sequence[RunRecording],
    after: Sequence[RunRecording],
) -> str:
    largest = abs(causes[0][1]) if causes else 0.0
    named = [each for each in causes[:_CAUSES_NAMED] if abs(each[1]) >= _NAMED_SHARE * largest]
    parts = ", ".join(change_of_part(part, moved) for part, moved in named)
    new, gone = _findings(before, after), _findings(after, before)
    return (
        f"Since recording {change.point + 1} {_what(change)}{f': {parts} per step' if parts else ''}."
        f"{f' New findings: {_list(new)}.' if new else ''}{f' Gone findings: {_list(gone)}.' if gone else ''}"
    )


def _what(change: RunChange) -> str:
    if change.what == "busy":
        return f"the GPU is busy {share(change.after)} of the time instead of {share(change.before)}"
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
