"""Which operations of a step wait for which, in a job with pipeline and data parallelism.

The model is that of "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI'25):

- Operations of one stream run in recorded order. Computing has one stream and collectives have one; sends and
  receives have one per optype.
- A micro-batch is received, then computed, then sent on. The receive is posted once the worker finished its
  previous computing in the same direction.
- The parameters of a chunk are gathered before its first forward, its gradients reduced after its last
  backward.
- Gradients of layer norms and embeddings, and clipping, follow all computing; the optimizer follows them.
- Operations of a group (a collective, a send and its receive) start together, once the last one can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tb_gpudiag.errors import TraceError
from tb_gpudiag.jobs.what_if_operations import Incomplete, Operations, Transfers, groups, transfers
from tb_gpudiag.jobs.what_if_schedule import Schedule, schedule
from tb_gpudiag.jobs.what_if_symmetry import OneOfMany, one_of_many
from tb_gpudiag.jobs.what_if_table import OPTYPES, OperationTable, Parallelism, Stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int64 = NDArray[np.int64]
    Float64 = NDArray[np.float64]
    Edges = tuple[Int64, Int64]

STREAM = np.array(
    [
        len(Stream) + index if optype.stream == Stream.OWN else optype.stream.value
        for index, optype in enumerate(OPTYPES)
    ]
)
COMMUNICATES = np.array([optype.communicates for optype in OPTYPES])

REDUCTIONS = ("grads-reduce-scatter", "grads-all-reduce")
GRADIENTS = (*REDUCTIONS, "layernorm-grads-all-reduce", "embedding-grads-all-reduce")
CLIPPING = "optimizer-clip-main-grad"


@dataclass(frozen=True)
class StepGraph:
    """Steps that consist of the same operations in the same order.

    steps: shape (k,). recorded_s: step times, shape (k,). duration_s: shape (n, k); of a communication it is
    the transfer, from the start of the group's last operation to its own end. one_of_many: None if the
    data-parallel ranks differ.
    """

    operations: Operations
    steps: Int64
    recorded_s: Float64
    duration_s: Float64
    schedule: Schedule
    one_of_many: OneOfMany | None


def step_graphs(table: OperationTable, job: Parallelism) -> tuple[list[StepGraph], dict[int, str]]:
    """Build the graphs of all steps, and say why steps are left out: {step: reason}.

    Raise TraceError if ranks, stages or chunks exceed the job's parallelism, or if no step is complete.
    """
    _check_range("dp_rank", table.dp_rank, job.dp)
    _check_range("stage", table.stage, job.pp)
    _check_range("mc", np.maximum(table.chunk, 0), job.vpp)
    graphs, left_out = [], {}
    for rows in _alike(table):
        try:
            graphs.append(_graph(table, rows, job))
        except Incomplete as error:
            left_out.update(dict.fromkeys(table.step[rows[0]].tolist(), str(error)))
    if not graphs:
        step, reason = next(iter(left_out.items()))
        raise TraceError(f"no step of the operation table is complete; step {step}: {reason}")
    return graphs, left_out


def _check_range(name: str, values: Int64, count: int) -> None:
    if values.min() < 0 or values.max() >= count:
        raise TraceError(
            f"the operation table has {name} {values.min()} to {values.max()}, outside 0 to {count - 1}",
            remedy="give the parallelism that the job ran with",
        )


def _alike(table: OperationTable) -> list[Int64]:
    """Return rows of the table, shape (n, k) for each set of k steps with the same n operations in the same
    order: by worker, stream and start."""
    lane = (table.stage * (table.dp_rank.max() + 1) + table.dp_rank) * (STREAM.max() + 1) + STREAM[
        table.optype
    ]
    rows = np.lexsort((table.seq, table.start_s, lane, table.step))
    what = ((lane * len(OPTYPES) + table.optype) * (table.chunk.max() + 2) + table.chunk + 1)[rows]
    new = np.flatnonzero(np.diff(table.step[rows])) + 1
    alike: dict[bytes, list[Int64]] = {}
    for step_rows, content in zip(np.split(rows, new), np.split(what, new), strict=True):
        alike.setdefault(content.tobytes(), []).append(step_rows)
    return [np.stack(steps, axis=1) for steps in alike.values()]


def _graph(table: OperationTable, rows: Int64, job: Parallelism) -> StepGraph:
    one = rows[:, 0]
    operations = Operations(table.dp_rank[one], table.stage[one], table.optype[one], table.chunk[one], job)
    transfer = transfers(operations)
    group = groups(operations, transfer)

    start, duration = table.start_s[rows], table.duration_s[rows]
    end = start + duration
    members = np.argsort(group, kind="stable")
    last_start = np.maximum.reduceat(
        start[members], np.flatnonzero(np.diff(group[members], prepend=-1)), axis=0
    )

    before, after = (np.concatenate(side) for side in zip(*_waits(operations, transfer), strict=True))
    # An operation that starts while another one runs does not wait for it: a receive that is posted early, a
    # collective that overlaps. A tenth and the majority of steps leave room for rounded times.
    waited = (start[after] >= start[before] + 0.9 * duration[before]).mean(axis=1) >= 0.5
    return StepGraph(
        operations,
        table.step[rows[0]],
        end.max(axis=0) - start.min(axis=0),
        np.where(COMMUNICATES[operations.optype][:, None], np.maximum(end - last_start[group], 0), duration),
        schedule(group, before[waited], after[waited]),
        one_of_many(operations, group, before[waited], after[waited]),
    )


def _waits(operations: Operations, transfer: Transfers) -> Iterator[Edges]:
    """Yield (before, after): operation after[i] waits for before[i]."""
    worker, job = operations.worker, operations.job
    stream = STREAM[operations.optype]
    same = np.flatnonzero((np.diff(worker) == 0) & (np.diff(stream) == 0))
    yield same, same + 1

    yield transfer.receive, transfer.receiver
    yield transfer.sender, transfer.send
    posted = transfer.previous >= 0
    yield transfer.previous[posted], transfer.receive[posted]

    chunk = worker * (job.vpp + 1) + operations.chunk + 1
    every_chunk = worker * (job.vpp + 1)
    gather, forward = operations.of("params-all-gather"), operations.of("forward-compute")
    yield _first(gather, chunk, forward, chunk)
    yield _first(gather, chunk, forward, every_chunk)
    reduction, backward = operations.of(*REDUCTIONS), operations.of("backward-compute")[::-1]
    yield _first(reduction, chunk, backward, chunk)[::-1]
    yield _first(reduction, chunk, backward, every_chunk)[::-1]

    computed = operations.of("forward-compute", "backward-compute", "gc")[::-1]
    gradients, clipping = operations.of(*GRADIENTS), operations.of(CLIPPING)
    late = np.setdiff1d(np.concatenate([gradients, clipping]), reduction)
    yield _first(late, worker, computed, worker)[::-1]
    yield _first(gradients, worker, clipping, worker)
    yield _first(np.concatenate([gradients, clipping]), worker, operations.of("optimizer"), worker)


def _first(chosen: Int64, key: Int64, candidates: Int64, candidate_key: Int64) -> Edges:
    """Pair operations with the first candidate that has their key; those without one are left out."""
    keys, first = np.unique(candidate_key[candidates], return_index=True)
    at = np.searchsorted(keys, key[chosen])
    found = np.append(keys, np.iinfo(np.int64).max)[at] == key[chosen]
    return chosen[found], candidates[first[at[found]]]
