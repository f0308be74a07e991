"""One side of a comparison: the recordings of one trace or of the ranks of one job, in figures per step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from statistics import fmean

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import Float64, Int64
from tb_gpudiag.digest.digest import WORK, Digest, numbers, texts, time_parts
from tb_gpudiag.errors import NothingToRead, UsageError
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.members import find_sets
from tb_gpudiag.jobs.step_parts import OTHER
from tb_gpudiag.step_time import step_time


@dataclass(frozen=True, eq=False)
class SharedSteps:
    """Steady steps that all ranks recorded, in time order.

    duration_ns: shape (ranks, steps). parts_ns: adds up to duration_ns, shape (ranks, steps, len(parts)).
    """

    duration_ns: Int64
    parts: list[str]
    parts_ns: Int64


@dataclass(frozen=True, eq=False)
class Side:
    """Digests of one trace, or of the ranks of one job; of several recordings of it, if there are. Never
    empty."""

    digests: Sequence[Digest]

    @property
    def first(self) -> Digest:
        """The digest that stands for the side where one is enough."""
        return self.digests[0]

    @cached_property
    def recordings(self) -> list[list[Digest]]:
        """The digests by recording: the first of each rank, the second of each, and so on, in time order."""
        by_rank: defaultdict[int, list[Digest]] = defaultdict(list)
        for digest in sorted(self.digests, key=lambda one: one.about.origin_ns):
            by_rank[digest.about.rank].append(digest)
        return [list(ranks) for ranks in zip(*by_rank.values(), strict=False)]

    @property
    def ranks(self) -> list[int]:
        return [digest.about.rank for digest in self.recordings[0]]

    @cached_property
    def on_gpu(self) -> bool:
        """Whether a GPU was recorded. Otherwise, parts of a step are parts of the main thread's time."""
        return any(digest.about.devices for digest in self.digests)

    def same_recording(self, other: Side) -> bool:
        """Return whether both sides have the same content."""
        own = sorted(digest.about.id for digest in self.digests)
        ids_agree = own == sorted(digest.about.id for digest in other.digests)
        return ids_agree and np.array_equal(self.steps.duration_ns, other.steps.duration_ns)

    @cached_property
    def steps(self) -> SharedSteps:
        """Steps of all ranks; those of several recordings one after the other."""
        causes = list(dict.fromkeys(cause for digest in self.digests for cause in digest.about.causes))
        each = [self._steps_of(recording, causes) for recording in self.recordings]
        return SharedSteps(
            np.concatenate([steps.duration_ns for steps in each], axis=1),
            each[0].parts,
            np.concatenate([steps.parts_ns for steps in each], axis=1),
        )

    def _steps_of(self, recording: Sequence[Digest], causes: list[str]) -> SharedSteps:
        tables = [digest.steady_steps for digest in recording]
        shared = [
            table.take(pa.array(rows, pa.int64()))
            for table, rows in zip(tables, _shared_rows(tables), strict=True)
        ]
        parts = [
            time_parts(table, digest.about, causes, on_gpu=self.on_gpu)
            for digest, table in zip(recording, shared, strict=True)
        ]
        duration_ns = np.stack([numbers(table, "end_ns") - numbers(table, "start_ns") for table in shared])
        parts_ns = np.stack(parts)
        rest_ns = duration_ns - parts_ns.sum(axis=2)
        return SharedSteps(duration_ns, [*WORK, *causes, OTHER], np.dstack([parts_ns, rest_ns]))

    @cached_property
    def samples_ns(self) -> Float64:
        """Duration of each step, mean over the ranks; shape (steps,)."""
        return self.steps.duration_ns.mean(axis=0) if self.steps.duration_ns.size else np.zeros(0)

    @cached_property
    def middles_ns(self) -> Float64:
        """Median and mean step of each recording, shape (2, recordings); 0 without steps."""
        causes: list[str] = []
        each = [self._steps_of(recording, causes).duration_ns for recording in self.recordings]
        steps = [ns.mean(axis=0) if ns.size else np.zeros(1) for ns in each]
        return np.array([[step_time(ns).median for ns in steps], [ns.mean() for ns in steps]])

    @property
    def mean_step_ns(self) -> float:
        """Mean duration of a step; 0 without steps."""
        duration = self.steps.duration_ns
        return int(duration.sum()) / duration.size if duration.size else 0.0

    @property
    def part_ns(self) -> dict[str, float]:
        """Mean time per step of each part. The parts add up to `mean_step_ns`."""
        steps = self.steps
        cells = max(1, steps.duration_ns.size)
        totals = steps.parts_ns.sum(axis=(0, 1))
        return {name: int(total) / cells for name, total in zip(steps.parts, totals, strict=True)}

    @property
    def unprofiled_share(self) -> float:
        """How much of a step is left without the recorder, estimated; mean over the recordings."""
        return fmean(digest.about.unprofiled_share for digest in self.digests)

    def per_step(self, digest: Digest) -> float:
        """Return the factor from a total over the digest's step window to a mean per step and rank."""
        return 1.0 / (max(1, len(digest.steady_steps)) * len(self.digests))

    @property
    def launches(self) -> float:
        """Launches per step and rank."""
        return sum(
            int(numbers(digest.operators, "launches").sum()) * self.per_step(digest)
            for digest in self.digests
        )


def _shared_rows(tables: Sequence[pa.Table]) -> list[list[int]]:
    """Return the rows of each table that are the same steps: by name, else by position from the first
    step."""
    names = [texts(table, "name") for table in tables]
    if all(len(set(own)) == len(own) for own in names):
        shared = set(names[0]).intersection(*names[1:])
        if shared:
            return [[row for row, name in enumerate(own) if name in shared] for own in names]
    shortest = min(len(own) for own in names)
    return [list(range(shortest)) for _ in names]


def floors(digest: Digest, device: str) -> tuple[Int64, Int64]:
    """Return times and sizes of a device's memory floors after the warm-up, shape (floors,) each."""
    table = digest.memory
    own = np.array([name == device for name in texts(table, "device")], np.bool_)
    own &= ~np.asarray(table.column("warm_up").to_numpy(), np.bool_)
    return numbers(table, "time_ns")[own], numbers(table, "floor_bytes")[own]


def one_side(digests: Sequence[Digest], where: str) -> list[Digest]:
    """Return the digests if they are recordings of one run: of a trace, or of the ranks of one job.

    Raises:
        NothingToRead: there are none.
        UsageError: they are recordings of several runs.
    """
    if not digests:
        raise NothingToRead("no trace and no digest was found", where=where)
    if len(digests) == 1:
        return list(digests)
    sets = find_sets(digests).sets
    ranks = {tuple(found.ranks) for found in sets}
    if len(ranks) == 1 and sum(len(found.members) for found in sets) == len(digests):
        return [member for found in sets for member in found.members]
    runs = {(digest.about.run, digest.about.rank, digest.about.kind) for digest in digests}
    if not sets and len(runs) == 1:
        return list(digests)
    raise UsageError(
        f"contains {len(digests):,} recordings that are not of one run, nor the ranks of one job",
        where=where,
        remedy="name one trace, or a directory with recordings of one run: one per rank, or several in turn",
    )
