"""One side of a comparison: the recordings of one trace or of the ranks of one job, in figures per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import Float64, Int64
from tb_gpudiag.digest.digest import WORK, Digest, numbers, texts, time_parts
from tb_gpudiag.errors import NothingToRead, UsageError
from tb_gpudiag.jobs.part_words import OTHER
from tb_gpudiag.jobs.ranks.members import find_sets


@dataclass(frozen=True)
class SharedSteps:
    """Steady steps that all ranks recorded, in time order.

    duration_ns: shape (ranks, steps). parts_ns: adds up to duration_ns, shape (ranks, steps, len(parts)).
    """

    duration_ns: Int64
    parts: list[str]
    parts_ns: Int64


@dataclass(frozen=True)
class Side:
    """Digests of one trace, or of the ranks of one job. Never empty."""

    digests: Sequence[Digest]

    @property
    def first(self) -> Digest:
        """The digest that stands for the side where one is enough."""
        return self.digests[0]

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
        """Steps of all ranks."""
        tables = [digest.steady_steps for digest in self.digests]
        shared = [
            table.take(pa.array(rows, pa.int64()))
            for table, rows in zip(tables, _shared_rows(tables), strict=True)
        ]
        causes = list(dict.fromkeys(cause for digest in self.digests for cause in digest.about.causes))
        parts = [
            time_parts(table, digest.about, causes, on_gpu=self.on_gpu)
            for digest, table in zip(self.digests, shared, strict=True)
        ]
        duration_ns = np.stack([numbers(table, "end_ns") - numbers(table, "start_ns") for table in shared])
        parts_ns = np.stack(parts)
        rest_ns = duration_ns - parts_ns.sum(axis=2)
        return SharedSteps(duration_ns, [*WORK, *causes, OTHER], np.dstack([parts_ns, rest_ns]))

    @cached_property
    def samples_ns(self) -> Float64:
        """Duration of each step, mean over the ranks; shape (steps,)."""
        return self.steps.duration_ns.mean(axis=0) if self.steps.duration_ns.size else np.zeros(0)

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
    """Return the digests if they are one recording, or those of the ranks of one job.

    Raises:
        NothingToRead: there are none.
        UsageError: they are several recordings.
    """
    if not digests:
        raise NothingToRead("no trace and no digest was found", where=where)
    if len(digests) == 1:
        return list(digests)
    sets = find_sets(digests).sets
    if len(sets) == 1 and len(sets[0].members) == len(digests):
        return list(sets[0].members)
    raise UsageError(
        f"contains {len(digests):,} recordings that are not the ranks of one job",
        where=where,
        remedy="name one trace, or a directory with one trace per rank; `gpudiag history` compares several "
        "recordings of a run",
    )
