"""Operations of one step by worker, and which of them start together: transfers and collectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tb_gpudiag.jobs.what_if_table import INDEX, OPTYPES, Parallelism, Scope

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int64 = NDArray[np.int64]

SCOPE = np.array([optype.scope.value for optype in OPTYPES])


class Incomplete(Exception):
    """Operations are missing from a step, so that its graph cannot be built."""


@dataclass(frozen=True)
class Operations:
    """Operations of a step, sorted by worker, stream and recorded start; shape (n,) each.

    A worker is a data-parallel rank of a stage. chunk: virtual stage within the worker, -1 for all.
    """

    dp_rank: Int64
    stage: Int64
    optype: Int64
    chunk: Int64
    job: Parallelism

    def __len__(self) -> int:
        return len(self.optype)

    @property
    def worker(self) -> Int64:
        """Number of each operation's worker, ascending."""
        return self.stage * self.job.dp + self.dp_rank

    @property
    def position(self) -> Int64:
        """Number of each operation's chunk in the model, from the input on."""
        return np.maximum(self.chunk, 0) * self.job.pp + self.stage

    def of(self, *names: str) -> Int64:
        """Find the operations with these optypes."""
        return np.flatnonzero(np.isin(self.optype, [INDEX[name] for name in names]))

    def check_counts(self, chosen: Int64, wanted: Int64, name: str) -> None:
        """Raise Incomplete unless each worker has as many operations in `chosen` as in `wanted`."""
        workers = self.job.dp * self.job.pp
        have = np.bincount(self.worker[chosen], minlength=workers)
        want = np.bincount(self.worker[wanted], minlength=workers)
        for odd in np.flatnonzero(have != want)[:1]:
            stage, dp_rank = divmod(int(odd), self.job.dp)
            place = f"stage {stage} of dp_rank {dp_rank}"
            raise Incomplete(f"{place} has {have[odd]} operations {name}, its micro-batches need {want[odd]}")


@dataclass(frozen=True)
class Transfers:
    """Sends and receives with the computing on both ends: indices of operations, shape (t,) each.

    previous: what the receiver computed before in the same direction, -1 if nothing.
    """

    sender: Int64
    send: Int64
    receive: Int64
    receiver: Int64
    previous: Int64


def transfers(operations: Operations) -> Transfers:
    """Join sends and receives. Raise Incomplete if one is missing, or all of a worker's operations."""
    job = operations.job
    for absent in np.setdiff1d(np.arange(job.dp * job.pp), operations.worker)[:1]:
        raise Incomplete(f"stage {absent // job.dp} of dp_rank {absent % job.dp} has no operations")
    both = [_one_way(operations, "forward", 1), _one_way(operations, "backward", -1)]
    return Transfers(*(np.concatenate(columns) for columns in zip(*both, strict=True)))


def _one_way(operations: Operations, way: str, ahead: int) -> tuple[Int64, ...]:
    """Join what a chunk sends for its k-th micro-batch with what the next one receives for its k-th.

    ahead: +1 if the next chunk is the one nearer to the output, else -1.
    """
    computed = operations.of(f"{way}-compute")
    worker, job = operations.worker[computed], operations.job
    last = job.pp * job.vpp - 1
    position = operations.position[computed]
    nth = rank_within(worker * (last + 1) + position)
    micro_batch = operations.dp_rank[computed] * len(operations) + nth

    sends = (position != (last if ahead > 0 else 0)) & (job.pp > 1)
    receives = (position != (0 if ahead > 0 else last)) & (job.pp > 1)
    send, receive = operations.of(f"{way}-send"), operations.of(f"{way}-recv")
    operations.check_counts(send, computed[sends], f"{way}-send")
    operations.check_counts(receive, computed[receives], f"{way}-recv")

    out = micro_batch[sends] * (last + 1) + position[sends] + ahead
    into = micro_batch[receives] * (last + 1) + position[receives]
    by_out, by_into = np.argsort(out), np.argsort(into)
    if not np.array_equal(out[by_out], into[by_into]):
        raise Incomplete(f"neighboring stages do not compute the same micro-batches ({way})")
    previous = np.concatenate([[-1], computed[:-1]])[: len(computed)]
    previous[np.diff(worker, prepend=-1) != 0] = -1
    return (
        computed[sends][by_out],
        send[by_out],
        receive[by_into],
        computed[receives][by_into],
        previous[receives][by_into],
    )


def rank_within(keys: Int64) -> Int64:
    """Number equal keys from 0 on, in their order. Shape (n,)."""
    order = np.argsort(keys, kind="stable")
    new = np.flatnonzero(np.diff(keys[order], prepend=keys[order][:1] - 1))
    ranks = np.empty_like(keys)
    ranks[order] = np.arange(len(keys)) - np.repeat(new, np.diff(new, append=len(keys)))
    return ranks


def groups(operations: Operations, transfer: Transfers) -> Int64:
    """Number the groups of operations that start together, from 0 on; shape (n,). Most are alone in theirs.

    Raise Incomplete if a collective lacks a rank.
    """
    optype, job, count = operations.optype, operations.job, len(operations)
    label = np.arange(count)
    label[transfer.receive] = transfer.send

    scope = SCOPE[optype]
    taker = np.select(
        [scope == Scope.STAGE.value, scope == Scope.PIPELINE.value],
        [operations.stage, job.pp + operations.dp_rank],
        job.pp + job.dp,
    )
    what = optype * (job.vpp + 1) + operations.chunk + 1
    kinds = len(OPTYPES) * (job.vpp + 1)
    nth = rank_within(operations.worker * kinds + what)
    collective = scope >= Scope.STAGE.value
    label[collective] = count * (1 + taker * kinds + what)[collective] + nth[collective]
    _, group, members = np.unique(label, return_inverse=True, return_counts=True)

    for taking, wanted in ((Scope.STAGE, job.dp), (Scope.JOB, job.dp * job.pp)):
        chosen = np.flatnonzero(scope == taking.value)
        for odd in chosen[members[group[chosen]] != wanted][:1]:
            raise Incomplete(
                f"{OPTYPES[optype[odd]].name} has {members[group[odd]]} ranks instead of {wanted}"
            )
    return np.asarray(group, np.int64)
