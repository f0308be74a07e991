"""Recordings of a run in time order, in figures per recording; and memory that grows over several of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Float64, Int64
from tb_gpudiag.digest.digest import Digest, MemoryPeaks
from tb_gpudiag.facts.memory.floor import MOST_FLOORS, evenly, theil_sen
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.compare.side import Side, floors
from tb_gpudiag.jobs.step_parts import ids_of
from tb_gpudiag.step_time import StepTime, step_time

# Clocks that were never set count from 1970, or from when the machine started.
_EARLIEST_NS: Final = 1_000_000_000 * 10**9  # September 2001
_DIGITS_OF_SECONDS: Final = 10
_DIGITS_OF_NS: Final = 19


@dataclass(frozen=True, eq=False)
class RunRecording:
    """One digest with the figures that are compared over time."""

    digest: Digest

    @cached_property
    def side(self) -> Side:
        return Side([self.digest])

    @cached_property
    def time_ns(self) -> int:
        """Unix time of the recording's start, else of the span in its name, else 0."""
        about = self.digest.about
        if about.origin_ns >= _EARLIEST_NS:
            return about.origin_ns
        digits = about.span if about.span.isdecimal() else ""
        if not _DIGITS_OF_SECONDS <= len(digits) <= _DIGITS_OF_NS:
            return 0
        return int(digits.ljust(_DIGITS_OF_NS, "0"))  # ms; ns in later versions of torch

    @property
    def has_steps(self) -> bool:
        return self.digest.about.steps_basis != "none" and len(self.side.samples_ns) > 0

    @cached_property
    def step_time(self) -> StepTime:
        """How long a step takes; zeros without steps."""
        return step_time(self.side.samples_ns if self.has_steps else [])

    @property
    def step_ns(self) -> float:
        return self.step_time.median

    @property
    def rules(self) -> list[str]:
        """Rules of the findings, each once."""
        return list(dict.fromkeys(finding.rule for finding in self.digest.findings))

    @property
    def process(self) -> tuple[str, int, str]:
        """What changes when the job restarts."""
        about = self.digest.about
        return about.host, about.pid, about.worker if about.pid == NONE else ""

    def memory(self, device: str) -> MemoryPeaks | None:
        return next((each for each in self.digest.about.memory if each.device == device), None)

    def floors(self, device: str) -> Int64:
        """Floors of a device's memory after the warm-up."""
        return floors(self.digest, device)[1]

    def floor(self, device: str) -> float:
        """Median floor after the warm-up; 0 without one."""
        sizes = self.floors(device)
        return float(np.median(sizes)) if len(sizes) else 0.0


@dataclass(frozen=True, eq=False)
class RankSeries:
    """Recordings of one rank of a run, in time order."""

    run: str
    recordings: Sequence[RunRecording]

    @cached_property
    def devices(self) -> list[str]:
        """Devices with memory, GPUs first, most memory first."""
        peaks: dict[str, int] = {}
        for recording in self.recordings:
            for memory in recording.digest.about.memory:
                peaks[memory.device] = max(peaks.get(memory.device, 0), memory.peak_allocated_bytes)
        return sorted(peaks, key=lambda device: (is_cpu(device), -peaks[device], device))


def is_cpu(device: str) -> bool:
    """Return whether the memory is the host's. A profiler only counts what is allocated there while it runs,
    so two recordings cannot be joined."""
    return device == "CPU"


def find_series(digests: Iterable[Digest]) -> list[RankSeries]:
    """Sort digests of traces into series by run and rank; or, without ranks, by run and worker if several
    workers recorded at the same time. Files with the same content count once."""
    contents = {digest.about.id: digest for digest in digests if digest.about.kind == "trace"}
    by_rank: dict[tuple[str, int], list[RunRecording]] = {}
    for digest in contents.values():
        by_rank.setdefault((digest.about.run, digest.about.rank), []).append(RunRecording(digest))
    found = []
    for (run, rank), recordings in sorted(by_rank.items()):
        groups = [recordings]
        if rank == NONE and _overlap(recordings):
            by_worker: dict[str, list[RunRecording]] = {}
            for recording in recordings:
                by_worker.setdefault(recording.digest.about.worker, []).append(recording)
            groups = [by_worker[worker] for worker in sorted(by_worker)]
        found += [RankSeries(run, sorted(group, key=_order)) for group in groups]
    return found


def _order(recording: RunRecording) -> tuple[int, int, str]:
    about = recording.digest.about
    return recording.time_ns, int(about.span[:30]) if about.span.isdecimal() else 0, about.path


def _overlap(recordings: Sequence[RunRecording]) -> bool:
    ends = 0
    for recording in sorted(recordings, key=_order):
        if 0 < recording.time_ns < ends:
            return True
        ends = recording.time_ns + recording.digest.about.recording_ns
    return False


_HOUR_NS: Final = 3_600e9

# Kendall's statistic in standard deviations: one noise series in 400 seems to rise this steadily. Six
# recordings reach it if each has more memory than the one before.
_LEAST_KENDALL: Final = 2.81

# A cache that fills grows in the first half. A leak still grows at half of its rate or more in the second
# half.
LATER_SHARE: Final = 0.5

# Less is chance: one recording happens to keep more than another.
LEAST_GROWTH_BYTES: Final = 1 << 20

# As for a single recording (rules/shared/leak_state.py): 4 KiB per step are 4 GiB after a million steps.
LEAST_BYTES_PER_STEP: Final = 4 << 10

# Where floors of recordings cannot be joined, each recording has its own slope. A few slopes only count if
# they agree within a tenth, as those of one leak do. Six slopes all rise by chance in one series of 64.
_EVEN_SHARE: Final = 0.1
_SLOPES_THAT_MAY_DIFFER: Final = 6

# No job runs for longer.
MOST_HOURS_UNTIL_FULL: Final = 24 * 90


@dataclass(frozen=True, eq=False)
class MemoryGrowth:
    """Growth of one device's memory in bytes. low_per_hour, high_per_hour: 95% confidence interval of the
    slope, or the extremes of a few slopes. per_step: 0 without steps. total_bytes: from the first recording
    to the last."""

    device: str
    per_hour: float
    low_per_hour: float
    high_per_hour: float
    per_step: float
    hours: float
    total_bytes: float
    hours_until_full: float
    recordings: Sequence[RunRecording]


def find_growth(recordings: Sequence[RunRecording], device: str) -> MemoryGrowth | None:
    """Find growth of a device's memory over recordings of one process; None if there is none.

    A GPU's allocator counts from the start of the process, so the floors of all recordings lie on one line.
    CPU memory is counted only while a profiler runs, so slopes within the recordings are compared.
    """
    used = [each for each in recordings if each.time_ns and len(each.floors(device))]
    used = [used[i] for i in evenly(np.arange(len(used)), MOST_FLOORS)]
    if len(used) < 2:
        return None
    if is_cpu(device):
        found = None if _is_open(used) else _within(used, device)
    else:
        found = _joined(used, device) or _within(used, device)
    if found is None or 0 < MOST_HOURS_UNTIL_FULL < found.hours_until_full:
        return None
    return found


def _is_open(used: Sequence[RunRecording]) -> bool:
    """Whether no recording says for sure that host memory grows, and one says that it cannot tell: a full
    buffer seems to grow in each of them."""
    leaks = ids_of("growth")
    found = any(leaks.intersection(each.rules) for each in used)
    return not found and any(leaks.intersection(each.digest.about.unchecked) for each in used)


def _joined(used: Sequence[RunRecording], device: str) -> MemoryGrowth | None:
    """Fit a line through the floors of the recordings."""
    hours = np.array([each.time_ns - used[0].time_ns for each in used]) / _HOUR_NS
    floors = np.array([each.floor(device) for each in used])
    hours, first = np.unique(hours, return_index=True)
    floors = floors[first]
    if len(hours) < 2 or _kendall(floors) < _LEAST_KENDALL:
        return None
    slope, low, high = theil_sen(hours, floors)
    half = (len(hours) + 1) // 2
    later = theil_sen(hours[-half:], floors[-half:])[0]
    total = slope * float(hours[-1])
    if low <= 0 or later < LATER_SHARE * slope or total < LEAST_GROWTH_BYTES:
        return None
    return _growth(used, device, slope, low, high, _hours_per_step(used))


def _within(used: Sequence[RunRecording], device: str) -> MemoryGrowth | None:
    """Compare slopes per step within the recordings."""
    if not all(each.has_steps for each in used):
        return None
    slopes = np.array([_slope_per_step(each, device) for each in used])
    slopes = np.sort(slopes[np.isfinite(slopes)])
    if len(slopes) < 2 or slopes[0] <= 0 or np.median(slopes) < LEAST_BYTES_PER_STEP:
        return None
    even = slopes[-1] - slopes[0] <= _EVEN_SHARE * slopes[-1]
    if len(slopes) < _SLOPES_THAT_MAY_DIFFER and not even:
        return None
    hours = _hours_per_step(used)
    if not hours:
        return None
    middle = float(np.median(slopes))
    return _growth(used, device, middle / hours, slopes[0] / hours, slopes[-1] / hours, hours)


def _slope_per_step(recording: RunRecording, device: str) -> float:
    """Slope of the floors within a recording; NaN with fewer than two, 0 if they stop growing.

    What a recording frees of the time before it is not counted on a CPU, so a cache whose slots are replaced
    grows until each slot was replaced once.
    """
    floors = recording.floors(device).astype(np.float64)
    if len(floors) < 2:
        return float("nan")
    slope = theil_sen(np.arange(len(floors), dtype=np.float64), floors)[0]
    half = (len(floors) + 1) // 2
    if half < 2:
        return slope
    later = theil_sen(np.arange(half, dtype=np.float64), floors[-half:])[0]
    return slope if later >= LATER_SHARE * slope else 0.0


def _growth(
    used: Sequence[RunRecording], device: str, slope: float, low: float, high: float, hours_per_step: float
) -> MemoryGrowth:
    hours = (used[-1].time_ns - used[0].time_ns) / _HOUR_NS
    memory = used[-1].memory(device)
    room = 0.0
    if memory is not None and memory.capacity_bytes:
        # Memory grows into what is reserved, and then beyond it.
        room = max(0.0, memory.capacity_bytes - memory.peak_allocated_bytes)
    return MemoryGrowth(
        device=device,
        per_hour=slope,
        low_per_hour=float(low),
        high_per_hour=float(high),
        per_step=slope * hours_per_step,
        hours=hours,
        total_bytes=slope * hours,
        hours_until_full=room / slope,
        recordings=used,
    )


def _hours_per_step(used: Sequence[RunRecording]) -> float:
    """Return the time from step to step, including what the job does between recordings: from the numbers of
    the steps, else the median step. 0 without steps."""
    numbered = [number for number in (_first_number(each) for each in used) if number is not None]
    elapsed = used[-1].time_ns - used[0].time_ns
    if len(numbered) == len(used) and numbered[-1] > numbered[0] and elapsed > 0:
        return elapsed / (numbered[-1] - numbered[0]) / _HOUR_NS
    steps = [each.step_ns for each in used if each.has_steps]
    return float(np.median(steps)) / _HOUR_NS if steps else 0.0


def _first_number(recording: RunRecording) -> int | None:
    """Return the number of the first step, from a name such as ProfilerStep#12."""
    names = recording.digest.steps.column("name").to_pylist()
    digits = names[0].rpartition("#")[2] if names else ""
    return int(digits) if digits.isdecimal() and len(digits) < 16 else None


def _kendall(values: Float64) -> float:
    """Return how steadily the values rise: Kendall's statistic in standard deviations, with ties."""
    count = len(values)
    signs = np.sign(values[None, :] - values[:, None])
    score = float(np.triu(signs, 1).sum())
    _, ties = np.unique(values, return_counts=True)
    variance = (count * (count - 1) * (2 * count + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()) / 18
    return score / float(np.sqrt(variance)) if variance > 0 else 0.0
