"""One side of a comparison: the recordings of one trace or of the ranks of one job, in figures per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from tb_gpudiag.arrays import Int64
from tb_gpudiag.digest.digest import Digest, numbers, per_cause, texts
from tb_gpudiag.jobs.part_words import OTHER

WORK: Final = ("computing", "copying", "communicating")


@dataclass(frozen=True)
class StepTimes:
    """Steady steps that all ranks recorded, in time order.

    duration_ns has shape (ranks, steps); parts_ns has shape (ranks, steps, len(parts)) and adds up to it.
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
        """Whether the GPU did anything. Else parts of a step are of the main thread's time."""
        return any(digest.about.devices for digest in self.digests)

    def same_recording(self, other: Side) -> bool:
        """Return whether both sides have the same content."""
        own = sorted(digest.about.id for digest in self.digests)
        ids_agree = own == sorted(digest.about.id for digest in other.digests)
        return ids_agree and np.array_equal(self.steps.duration_ns, other.steps.duration_ns)

    @cached_property
    def steps(self) -> StepTimes:
        """Steps of all ranks."""
        tables = [_steady(digest.steps) for digest in self.digests]
        rows = _shared_rows(tables)
        parts: list[str] = []
        split = [
            _parts(digest, table, self.on_gpu) for digest, table in zip(self.digests, tables, strict=True)
        ]
        for names, _ in split:
            parts += [name for name in names if name not in parts]
        duration = np.zeros((len(tables), len(rows[0])), np.int64)
        parts_ns = np.zeros((*duration.shape, len(parts)), np.int64)
        for i, (table, (names, values)) in enumerate(zip(tables, split, strict=True)):
            duration[i] = _durations(table)[rows[i]]
            parts_ns[i][:, [parts.index(name) for name in names]] = values[rows[i]]
        return StepTimes(duration, parts, parts_ns)

    @cached_property
    def samples_ns(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Duration of each step, the mean of the ranks. Shape (steps,)."""
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
        """Factor from a total over the digest's step window to a mean per step and rank."""
        return 1.0 / (max(1, len(_steady(digest.steps))) * len(self.digests))

    @property
    def launches(self) -> float:
        """Launches per step and rank."""
        return sum(
            int(numbers(digest.operators, "launches").sum()) * self.per_step(digest)
            for digest in self.digests
        )


def _steady(steps: pa.Table) -> pa.Table:
    return steps.filter(steps.column("steady"))


def _durations(steps: pa.Table) -> Int64:
    return numbers(steps, "end_ns") - numbers(steps, "start_ns")


def _shared_rows(tables: Sequence[pa.Table]) -> list[list[int]]:
    """Rows of each table that are the same steps: of the same name, else by position from the first one."""
    names = [texts(table, "name") for table in tables]
    if all(len(set(own)) == len(own) for own in names):
        shared = set(names[0]).intersection(*names[1:])
        if shared:
            return [[row for row, name in enumerate(own) if name in shared] for own in names]
    shortest = min(len(own) for own in names)
    return [list(range(shortest)) for _ in names]


def _parts(digest: Digest, steps: pa.Table, on_gpu: bool) -> tuple[list[str], Int64]:
    """Names and times of the parts of each step. Shape (steps, parts). They add up to the step."""
    causes = digest.about.causes
    columns = [numbers(steps, f"{name}_ns") for name in WORK]
    by_cause = per_cause(steps, "idle_ns", len(causes))
    names = [*WORK, *causes]
    values = np.column_stack([*columns, by_cause])
    if not on_gpu:
        names, values = list(causes), per_cause(steps, "host_ns", len(causes))
    rest = _durations(steps) - values.sum(axis=1)
    if rest.any():
        names, values = [*names, OTHER], np.column_stack([values, rest])
    return names, values.astype(np.int64)
