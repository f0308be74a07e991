"""What stragglers cost a job: its steps replayed without them, after "Understanding Stragglers in Large Model
Training Using What-if Analysis" (OSDI'25).

Three step times: as recorded; without launch delays (each operation starts as soon as its dependencies
allow); and without straggling. Without straggling, each computing operation takes the mean of its optype over
all micro-batches, steps and workers, and each communication the median transfer. The slowdown S is the ratio
of the mean step times without launch delays and without straggling. The decomposition keeps the straggling of
one part of the operations only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tb_gpudiag.jobs.what_if_graph import StepGraph, step_graphs
from tb_gpudiag.jobs.what_if_operations import Operations
from tb_gpudiag.jobs.what_if_table import OPTYPES, OperationTable, Parallelism

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int64 = NDArray[np.int64]
    Float64 = NDArray[np.float64]
    Bool = NDArray[np.bool_]

SLOWEST = 0.03
"""Share of the workers that M_W is about, as in the paper."""

CELLS = 4_000_000
"""Durations in memory at once: steps are replayed for as many what-ifs as fit."""


@dataclass(frozen=True)
class Decomposition:
    """Step times if only one part of the operations straggles.

    parts: p ranks, stages or kinds. step_s: shape (p, k) for k steps. ideal_s: without straggling, (k,).
    """

    parts: tuple[int | str, ...]
    step_s: Float64
    ideal_s: Float64

    @property
    def slowdown(self) -> Float64:
        """Ratio of mean step times, 1 if the part does not straggle. Shape (p,)."""
        return np.asarray(self.step_s.mean(axis=1) / self.ideal_s.mean())

    @property
    def step_slowdown(self) -> Float64:
        """Ratio for each step, shape (p, k)."""
        return self.step_s / self.ideal_s


@dataclass(frozen=True)
class Contribution:
    """How much of the straggling some workers explain.

    workers: (dp_rank, stage). without_s: mean step time if they alone do not straggle; only_s: if only they
    do. share: saved without their straggling, of the time that all straggling costs (M_W, M_S in the paper).
    only_share: lost to theirs alone. Both are nan if straggling costs nothing.
    """

    workers: tuple[tuple[int, int], ...]
    without_s: float
    only_s: float
    share: float
    only_share: float


@dataclass(frozen=True)
class WhatIf:
    """What-if analysis of an operation table. Times in seconds, shape (k,) for k complete steps.

    left_out: {step: reason} of steps that lack operations.
    """

    steps: Int64
    left_out: dict[int, str]
    recorded_s: Float64
    without_delays_s: Float64
    ideal_s: Float64
    by_dp_rank: Decomposition
    by_stage: Decomposition
    by_kind: Decomposition
    slowest_workers: Contribution
    last_stage: Contribution

    @property
    def slowdown(self) -> float:
        """S: what straggling multiplies the mean step time by."""
        return float(self.without_delays_s.mean() / self.ideal_s.mean())

    @property
    def step_slowdown(self) -> Float64:
        """S of each step, shape (k,)."""
        return self.without_delays_s / self.ideal_s

    @property
    def delay_slowdown(self) -> float:
        """What launch delays multiply the mean step time by. Far from 1, the model misses a dependency."""
        return float(self.recorded_s.mean() / self.without_delays_s.mean())


def what_if(table: OperationTable, job: Parallelism) -> WhatIf:
    """Replay the steps of an operation table without straggling, and with the straggling of each part alone.

    Raise TraceError if no step is complete.
    """
    graphs, left_out = step_graphs(table, job)
    replay = _Replay(graphs)
    straggling, ideal = replay.step_s([_everything, _nothing])
    kinds = tuple(dict.fromkeys(OPTYPES[index].kind for index in np.unique(table.optype)))

    stages = [_stage(stage) for stage in range(job.pp)]
    by_dp_rank = Decomposition(tuple(range(job.dp)), replay.dp_rank_step_s(job.dp), ideal)
    by_stage = Decomposition(tuple(range(job.pp)), replay.step_s(stages), ideal)
    by_kind = Decomposition(kinds, replay.step_s([_kind(kind) for kind in kinds]), ideal)

    # As in the paper: one replay per worker would be too many.
    slowdown = np.minimum(by_dp_rank.slowdown[:, None], by_stage.slowdown)
    slowest = np.argsort(-slowdown, axis=None, kind="stable")[: math.ceil(SLOWEST * slowdown.size)]
    total = float(straggling.mean() - ideal.mean())

    def contribution(chosen: Iterable[int]) -> Contribution:
        workers = tuple((index // job.pp, index % job.pp) for index in chosen)
        without, only = replay.step_s([_without(_workers(workers)), _workers(workers)]).mean(axis=1)
        cost = np.array([straggling.mean() - without, only - ideal.mean()])
        share, only_share = cost / total if total else (math.nan, math.nan)
        return Contribution(workers, float(without), float(only), float(share), float(only_share))

    return WhatIf(
        np.concatenate([graph.steps for graph in graphs])[replay.order],
        left_out,
        np.concatenate([graph.recorded_s for graph in graphs])[replay.order],
        straggling,
        ideal,
        by_dp_rank,
        by_stage,
        by_kind,
        contribution(slowest.tolist()),
        contribution(range(job.pp - 1, job.dp * job.pp, job.pp)),
    )


Part = Callable[[Operations], "Bool"]
"""Chooses operations of a step, shape (n,)."""


def _everything(operations: Operations) -> Bool:
    return np.ones(len(operations), bool)


def _nothing(operations: Operations) -> Bool:
    return np.zeros(len(operations), bool)


def _dp_rank(rank: int) -> Part:
    return lambda operations: operations.dp_rank == rank


def _stage(stage: int) -> Part:
    return lambda operations: operations.stage == stage


def _kind(kind: str) -> Part:
    of_kind = np.array([optype.kind == kind for optype in OPTYPES])
    return lambda operations: of_kind[operations.optype]


def _workers(workers: Iterable[tuple[int, int]]) -> Part:
    def chosen(operations: Operations) -> Bool:
        numbers = [stage * operations.job.dp + dp_rank for dp_rank, stage in workers]
        return np.isin(operations.worker, numbers)

    return chosen


def _without(part: Part) -> Part:
    return lambda operations: ~part(operations)


class _Replay:
    """Replays all steps for many what-ifs. order: sorts the graphs' steps, shape (k,)."""

    def __init__(self, graphs: list[StepGraph]) -> None:
        self._graphs = graphs
        self._ideal_s = _without_straggling(graphs)
        self.order = np.argsort(np.concatenate([graph.steps for graph in graphs]))

    def step_s(self, straggling: Sequence[Part]) -> Float64:
        """Return the step times if only the given operations straggle, shape (what-ifs, k)."""
        return np.concatenate([self._graph_step_s(graph, straggling) for graph in self._graphs], axis=1)[
            :, self.order
        ]

    def dp_rank_step_s(self, ranks: int) -> Float64:
        """Return the step times if only one data-parallel rank straggles, shape (ranks, k)."""
        parts = [_dp_rank(rank) for rank in range(ranks)]
        found = [
            self._graph_step_s(graph, parts) if graph.one_of_many is None else self._one_of_many_step_s(graph)
            for graph in self._graphs
        ]
        return np.concatenate(found, axis=1)[:, self.order]

    def _one_of_many_step_s(self, graph: StepGraph) -> Float64:
        one_of_many = graph.one_of_many
        assert one_of_many is not None
        rows, steps = one_of_many.rows, len(graph.steps)
        ideal = self._ideal_s[graph.operations.optype[rows[0]]][:, None]
        at_once = max(1, CELLS // (2 * rows.shape[1] * steps))
        times = []
        for low in range(0, len(rows), at_once):
            straggling = graph.duration_s[rows[low : low + at_once]].swapaxes(0, 1).reshape(len(ideal), -1)
            durations = np.concatenate([straggling, np.broadcast_to(ideal, straggling.shape)])
            times.append(one_of_many.schedule.ends(durations).max(axis=0).reshape(-1, steps))
        return np.concatenate(times)

    def _graph_step_s(self, graph: StepGraph, straggling: Sequence[Part]) -> Float64:
        recorded = graph.duration_s[:, None, :]
        ideal = self._ideal_s[graph.operations.optype][:, None, None]
        count, _, steps = recorded.shape
        at_once = max(1, CELLS // (count * steps))
        times = []
        for low in range(0, len(straggling), at_once):
            parts = np.stack([part(graph.operations) for part in straggling[low : low + at_once]], axis=1)
            durations = np.where(parts[:, :, None], recorded, ideal).reshape(count, -1)
            times.append(graph.schedule.ends(durations).max(axis=0).reshape(-1, steps))
        return np.concatenate(times)


def _without_straggling(graphs: list[StepGraph]) -> Float64:
    """Return the seconds of each optype without straggling, over all steps; nan if there is none."""
    ideal = np.full(len(OPTYPES), np.nan)
    for index, optype in enumerate(OPTYPES):
        durations = [graph.duration_s[graph.operations.optype == index].ravel() for graph in graphs]
        recorded = np.concatenate(durations)
        if len(recorded):
            ideal[index] = np.median(recorded) if optype.communicates else recorded.mean()
    return ideal
