"""Which parallelisms a job uses, as far as its collectives show, and what each collective is for."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.intervals import places_of_each
from tb_gpudiag.jobs.ranks.channels import RECEIVE, SEND, Channels
from tb_gpudiag.jobs.ranks.operations import RankOperations, row_groups
from tb_gpudiag.jobs.ranks.waits import Waits
from tb_gpudiag.vocabulary import collective_kinds
from tb_gpudiag.vocabulary.collective_kinds import DDP, EXPERT, IN_ORDER, PIPELINE, TENSOR, parallelism_of
from tb_gpudiag.vocabulary.collective_kinds import FULLY_SHARDED as FSDP

SHARDED: Final = "sharded"
"""Of weights, of an optimizer, or of sequences: the traces do not say."""

_SAID_BY_CALLERS: Final = (collective_kinds.OPTIMIZER, collective_kinds.FUNCTIONAL)

RING: Final = "ring"
"""Keys and values of long sequences go round the ranks."""

# Most calls of one kind decide: a norm or a metric may be reduced elsewhere.
_MOST: Final = 0.5
# Tensor-parallel layers wait for each all-reduce. DDP overlaps its all-reduces with the backward pass.
_BLOCKING_SHARE: Final = 0.9
# Something computes between the all-reduces of tensor-parallel layers. All-reduces of gradients without
# overlap follow one another directly.
_BETWEEN: Final = 0.8


def parallelisms(operations: RankOperations, channels: Channels, waits: Waits) -> list[str]:
    """Return the parallelisms in a fixed order."""
    if not len(waits):
        return []
    row = waits.last_row
    kinds = np.array(operations.kind.texts, object)[operations.kind.code[row]]
    has = set(kinds.tolist())
    of = channels.of[row]
    found = []
    tensor = tensor_channels(operations, channels, waits)
    sharded = _sharded(operations, row, has)
    if sharded and sharded != TENSOR:
        found.append(sharded)
    elif np.isin(of[kinds == "all_reduce"], list(tensor), invert=True).any():
        found.append(DDP)
    if tensor or sharded == TENSOR:
        found.append(TENSOR)
    if channels.is_ring:
        found.append(RING)
    elif channels.is_pipeline or "send_recv" in has:
        found.append(PIPELINE)
    if "all_to_all" in has:
        found.append(EXPERT)
    return found


def _sharded(operations: RankOperations, row: Int64, has: set[str]) -> str:
    """Return what all-gathers and reduce-scatters are for; "" if there are none. row: of each collective."""
    chosen = row[operations.of_kinds({"all_gather", "reduce_scatter"})[row]]
    callers = Counter(operations.caller[i] for i in chosen.tolist())
    if callers[collective_kinds.FSDP]:
        return FSDP
    for caller in _SAID_BY_CALLERS:
        if callers[caller] > _MOST * len(chosen):
            return parallelism_of("", caller)
    # Embedding tables in shards exchange by all-to-all, and gather what is split by rows.
    return SHARDED if {"all_gather", "reduce_scatter"} <= has and "all_to_all" not in has else ""


def tensor_channels(operations: RankOperations, channels: Channels, waits: Waits) -> set[int]:
    """Find channels whose all-reduces DTensor's layers call, or that have many which overlap with nothing and
    have computing between them."""
    found = set()
    reduced = np.flatnonzero(operations.of_kinds({"all_reduce"})[waits.last_row])
    of = channels.of[waits.last_row[reduced]]
    for channel in np.unique(of).tolist():
        own = reduced[of == channel]
        rows = waits.last_row[own]
        length = operations.end_ns[rows] - operations.start_ns[rows]
        by_layers = [operations.caller[row] == collective_kinds.FUNCTIONAL for row in rows.tolist()]
        if sum(by_layers) > _MOST * len(rows):
            found.add(channel)
            continue
        exposed = operations.exposed_ns[rows].sum() >= _BLOCKING_SHARE * max(1, int(length.sum()))
        steps = max(1, len(np.unique(operations.step.code[rows])))
        several = len(own) >= 4 * steps
        between = float((operations.kernels[rows] > 0).mean())
        if exposed and several and between >= _BETWEEN:
            found.add(channel)
    return found


OTHER_RANK: Final = "other_rank"
"""The reason of what waits for a rank that arrives later."""


class JobUnit(NamedTuple):
    """Matched collectives of one kind for one unit. Times are sums over its collectives.

    skew_ns: last arrival - first arrival: waiting for one another. transfer_ns: after the last arrival.
    exposed_ns: while nothing computed, mean over the ranks. last: the member that is last most often, in this
    many of them. why: the reason for most of the exposed time.
    """

    kind: str
    parallelism: str
    unit: str
    number: int  # in its step, from 1; NONE if a unit is named, or no order tells units apart
    of: int
    collectives: int
    bytes: int
    skew_ns: int
    transfer_ns: int
    exposed_ns: int
    last: int
    last_in: int
    why: str


def units_of(operations: RankOperations, waits: Waits) -> list[JobUnit]:
    """Group the matched collectives, those that cost most first."""
    if not len(waits):
        return []
    row = waits.last_row
    ordered = operations.caller.where(lambda text: text in IN_ORDER)
    place = np.where(
        ordered & (operations.unit.code == _code(operations.unit.texts, "")), operations.number, NONE
    )
    kind = operations.kind.code.astype(np.int64)
    receives = operations.of_kinds({RECEIVE})
    kind[receives] = _code(operations.kind.texts, SEND)  # one message
    columns = (
        kind[row],
        operations.caller.code[row].astype(np.int64),
        operations.unit.code[row].astype(np.int64),
        place[row],
    )
    _, group = row_groups(*columns)
    of = _most_in_a_step(operations)
    rows_of = dict(places_of_each(group[waits.collective]))
    found = []
    for number, own in places_of_each(group):
        one = int(row[own[0]])
        rows = rows_of[number]
        lasts = np.bincount(waits.last_member[own])
        name = SEND if operations.kind[one] == RECEIVE else operations.kind[one]
        share = 1 / np.maximum(1, waits.size[waits.collective[rows]])
        found.append(
            JobUnit(
                kind=name,
                parallelism=parallelism_of(name, operations.caller[one]),
                unit=operations.unit[one],
                number=int(place[one]),
                of=int(of[one]),
                collectives=len(own),
                bytes=int(np.median(operations.bytes[row[own]])),
                skew_ns=int(waits.skew_ns[own].sum()),
                transfer_ns=int(waits.transfer_ns[own].sum()),
                exposed_ns=int((waits.exposed_ns[rows] * share).sum()),
                last=int(lasts.argmax()),
                last_in=int(lasts.max()),
                why=_why(operations, waits, rows),
            )
        )
    return sorted(
        found, key=lambda one: (-one.exposed_ns, -one.skew_ns - one.transfer_ns, one.unit, one.number)
    )


def _why(operations: RankOperations, waits: Waits, rows: Int64) -> str:
    """Return the reason of most of the exposed time. One rank guesses what is waiting; together they know."""
    exposed = waits.exposed_ns[rows]
    if exposed.any() and 2 * waits.exposed_waiting_ns[rows].sum() >= exposed.sum():
        return OTHER_RANK
    texts = operations.why.texts
    spent = np.bincount(operations.why.code[waits.row[rows]], exposed, len(texts))
    spent[[code for code, text in enumerate(texts) if text == OTHER_RANK]] = 0
    return texts[int(spent.argmax())] if spent.any() else ""


def _most_in_a_step(operations: RankOperations) -> Int64:
    """How many operations of its kind and caller each one's rank has in a step, shape (n,)."""
    _, group = row_groups(
        operations.member.astype(np.int64),
        operations.kind.code.astype(np.int64),
        operations.caller.code.astype(np.int64),
    )
    most = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    np.maximum.at(most, group, operations.number)
    return most[group]


def _code(texts: list[str], text: str) -> int:
    return texts.index(text) if text in texts else NONE
