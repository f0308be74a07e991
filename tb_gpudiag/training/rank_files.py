"""Find the files that the ranks of a job wrote at the same time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tb_gpudiag.training.recording_file import WrittenRecording, worker_and_time

# Ranks end the same step together, but take their time to write.
WAIT_S = 120.0

MOST_RANKS: Final = 64
"""Rank 0 reads the traces of all ranks. For more of them, this takes a machine of its own."""


@dataclass
class RankFiles:
    """Files of all ranks of the job that rank 0's recording belongs to. paths: as far as they are there."""

    recording: WrittenRecording
    earliest_ns: int  # files before it belong to the recording before
    since_s: float = field(default_factory=time.monotonic)
    paths: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, recording: WrittenRecording, before_ns: int) -> RankFiles | None:
        """Return what to look for; None if this is not rank 0 of several.

        before_ns: when rank 0 wrote the recording before this one, 0 if there is none.
        """
        if recording.rank != 0 or not 1 < recording.world_size <= MOST_RANKS:
            return None
        earliest_ns = max(recording.time_ns - int(WAIT_S * 1e9), (recording.time_ns + before_ns) // 2)
        return cls(recording, earliest_ns)

    @property
    def folder(self) -> str:
        """Where the files are: a folder, or the URL of one."""
        return os.path.dirname(self.recording.url or self.recording.path)

    def are_there(self, names: Iterable[str]) -> bool:
        """Look for the files among `names`: of each worker, the one written closest to rank 0's."""
        closest: dict[str, tuple[int, str]] = {}
        for name in names:
            found = worker_and_time(name)
            if found is None or found[1] < self.earliest_ns:
                continue
            one = (abs(found[1] - self.recording.time_ns), f"{self.folder}/{name}")
            closest[found[0]] = min(one, closest.get(found[0], one))
        self.paths = sorted(path for _, path in closest.values())
        return len(self.paths) >= self.recording.world_size

    def is_late(self) -> bool:
        """Return whether it is time to stop looking."""
        return time.monotonic() - self.since_s > WAIT_S

    def what_is_missing(self) -> str:
        """Say how many files were found."""
        return (
            f"{len(self.paths)} of {self.recording.world_size} ranks wrote a recording in {WAIT_S:g} s, so "
            "there is no verdict on the job. Ranks need the same folder, and a worker name each."
        )
