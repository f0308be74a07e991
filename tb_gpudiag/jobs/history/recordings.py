"""Recordings of a run in time order, in figures per recording."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.digest.digest import Digest, MemoryPeaks
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.compare.side import Side, floors
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
