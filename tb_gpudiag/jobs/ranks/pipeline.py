"""Pipelines: the schedule that the stages follow, and how long each stage has nothing to compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64
from tb_gpudiag.digest.digest import Digest, numbers, time_parts
from tb_gpudiag.facts.core.intervals import places_of_each
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.channels import RECEIVE, SEND, Channels
from tb_gpudiag.jobs.ranks.clocks import Clocks
from tb_gpudiag.jobs.ranks.operations import COMPUTING, RankOperations
from tb_gpudiag.vocabulary.patterns import lazy_re

GPIPE: Final = "GPipe"
ONE_F_ONE_B: Final = "1F1B"
INTERLEAVED: Final = "interleaved 1F1B"
LOOPED: Final = "looped GPipe"
ZERO_BUBBLE: Final = "zero bubble"

# torch.distributed.pipelining marks each action: `Forward 3`, `Backward 3`, and with several stages on a
# rank `PP:0F3`, where I and W are the two halves of a backward pass.
_SINGLE = lazy_re(r"(?P<pass>Forward|Backward) (?P<batch>[0-9]{1,9})")
_SEVERAL = lazy_re(r"PP:(?P<stage>[0-9]{1,9})(?P<pass>F|B|I|W)(?P<batch>[0-9]{0,9})")


_NO_ROWS: Final = np.zeros(0, np.int64)


class Stage(NamedTuple):
    """A rank of a pipeline. Times are sums over the steps.

    bubble_ns: while it sends or receives and nothing computes: warm_up before its first micro-batch, drain
    after its last one until the first stage begins the next step, and between for the rest.
    """

    member: int
    stage: int  # place in its pipeline, from 0
    computing_ns: int
    warm_up_ns: int
    between_ns: int
    drain_ns: int

    @property
    def bubble_ns(self) -> int:
        return self.warm_up_ns + self.between_ns + self.drain_ns


@dataclass(frozen=True)
class Pipeline:
    """The pipeline of a job.

    schedule: "" if the order does not show it. named: torch.distributed.pipelining marked it. batches:
    micro-batches of a step, 0 if not known. chunks: stages of a rank. steps, steps_ns:
    number of steps and the duration of all of them.
    """

    schedule: str
    named: bool
    depth: int
    batches: int
    chunks: int
    steps: int
    steps_ns: int
    stages: list[Stage]

    @property
    def bubble_share(self) -> float:
        """Mean share of the time in which a stage waits."""
        total = sum(one.bubble_ns for one in self.stages)
        return total / max(1, self.steps_ns * len(self.stages))

    @property
    def ideal_share(self) -> float | None:
        """The least bubble of the schedule if all stages take equally long: (p - 1) / (v m + p - 1) with p
        ranks, v stages on each, and m micro-batches. GPipe (Huang et al., 2019) and 1F1B have the same;
        several stages on a rank divide it (Narayanan et al., 2021, section 2.2). None for others."""
        if not self.batches or self.schedule not in (GPIPE, ONE_F_ONE_B, INTERLEAVED, LOOPED):
            return None
        return (self.depth - 1) / (self.chunks * self.batches + self.depth - 1)


def pipeline_of(
    members: Sequence[Digest], operations: RankOperations, channels: Channels, clocks: Clocks
) -> Pipeline | None:
    """Find the pipeline; None if the job has none, or its messages do not say between which ranks."""
    messages = np.flatnonzero(operations.of_kinds({SEND, RECEIVE}) & operations.step.where(bool))
    if not channels.is_pipeline or not len(messages):
        return None
    ranks = np.array([member.about.rank for member in members], np.int64)
    place = _places(ranks, channels)
    actions = _actions(operations, messages, ranks)
    begun = _steps_begin(members, operations, clocks, [m for m, stage in place.items() if not stage])
    depth = max(place.values(), default=0) + 1
    last = [member for member, stage in place.items() if stage == depth - 1]
    rows_of = {m: actions.row[own] for m, own in places_of_each(operations.member[actions.row])}
    # The micro-batches of a step; 0 if they are not known.
    counts = [
        len(np.unique(batch[forward])) if actions.named else int(forward.sum())
        for batch, forward in _passes(operations, actions, last)
        if forward.any()
    ]
    return Pipeline(
        schedule=_schedule(operations, actions, last),
        named=actions.named,
        depth=depth,
        batches=int(np.median(counts)) if counts else 0,
        chunks=actions.chunks,
        steps=int(np.median([len(members[member].steps) for member in place])),
        steps_ns=int(np.median([_steps_ns(members[member]) for member in place])),
        stages=[
            _stage(operations, clocks, rows_of.get(member, _NO_ROWS), member, stage, begun)._replace(
                computing_ns=_computing_ns(members[member])
            )
            for member, stage in sorted(place.items(), key=lambda one: (one[1], one[0]))
        ],
    )


def _places(ranks: Int64, channels: Channels) -> dict[int, int]:
    """Return the place of each member in its pipeline: how many stages come before it."""
    pairs = {one.pair for one in channels.channels if one.pair is not None and one.pair[0] < one.pair[1]}
    before: dict[int, int] = {}
    for sender, receiver in sorted(pairs):
        before[receiver] = max(sender, before.get(receiver, sender))  # the neighbor: wrapping around is later
    place: dict[int, int] = {}
    for rank in sorted({rank for pair in pairs for rank in pair}):
        place[rank] = place[before[rank]] + 1 if rank in before else 0
    return {m: place[rank] for m, rank in enumerate(ranks.tolist()) if rank in place}


class _Actions(NamedTuple):
    """Messages in order of their calls, and whether they belong to a forward pass. Shape (a,) each.

    batch: of torch's marks, or NONE. chunks: stages on a rank. halves: backward passes come in two halves."""

    row: Int64
    forward: Bool
    batch: Int64
    named: bool
    chunks: int
    halves: bool


def _actions(operations: RankOperations, messages: Int64, ranks: Int64) -> _Actions:
    texts = operations.annotation.texts
    single, several = ([form.fullmatch(text) for text in texts] for form in (_SINGLE, _SEVERAL))
    found = [one or more for one, more in zip(single, several, strict=True)]
    code = operations.annotation.code[messages]
    marked = np.array([one is not None for one in found] or [False])[code]
    named = bool(marked.any())
    row, code = (messages[marked], code[marked]) if named else (messages, code)
    order = np.lexsort((operations.called_ns[row], operations.member[row]))
    row, code = row[order], code[order]
    if named:
        forward = np.array([one is not None and one["pass"][0] == "F" for one in found])[code]
        batch = np.array([int(one["batch"] or NONE) if one is not None else NONE for one in found])[code]
    else:
        own = ranks[operations.member[row]]
        sends = operations.of_kinds({SEND})[row]
        other = np.where(sends, operations.destination[row], operations.source[row])
        forward, batch = sends == (other > own), np.full(len(row), NONE, np.int64)
    used = [several[i] for i in np.unique(code).tolist()] if named else []
    stages = {one["stage"] for one in used if one is not None}
    of_rank = len(np.unique(operations.member[row]))
    return _Actions(
        row,
        forward,
        batch.astype(np.int64),
        named,
        max(1, len(stages) // max(1, of_rank)),
        any(one is not None and one["pass"] in "IW" for one in used),
    )


def _schedule(operations: RankOperations, actions: _Actions, last: list[int]) -> str:
    """Name the schedule by the order of passes on the last stages, where 1F1B alternates from the start."""
    if actions.halves:
        return ZERO_BUBBLE
    in_order, alternating = False, False
    for _, forward in _passes(operations, actions, last):
        if forward.sum() > 1 and not forward.all():
            first_backward = int(np.flatnonzero(~forward)[0])
            in_order |= not forward[first_backward:].any()
            alternating |= bool(forward[first_backward:].any())
    if in_order == alternating:
        return ""
    if actions.chunks > 1:
        return INTERLEAVED if alternating else LOOPED
    return ONE_F_ONE_B if alternating else GPIPE


def _passes(
    operations: RankOperations, actions: _Actions, members: list[int]
) -> Iterator[tuple[Int64, Bool]]:
    """Yield micro-batch and pass of the actions of each of these members and steps, in order."""
    chosen = np.flatnonzero(np.isin(operations.member[actions.row], members))
    row = actions.row[chosen]
    steps = operations.member[row].astype(np.int64) * len(operations.step.texts) + operations.step.code[row]
    for _, own in places_of_each(steps):
        yield actions.batch[chosen[own]], actions.forward[chosen[own]]


def _steps_begin(
    members: Sequence[Digest], operations: RankOperations, clocks: Clocks, first: list[int]
) -> Int64:
    """When the first stages begin each step, by the code of the step; a very early time where none does."""
    early = np.iinfo(np.int64).min // 2
    begun = np.full(len(operations.step.texts), np.iinfo(np.int64).max)
    code = {name: i for i, name in enumerate(operations.step.texts)}
    for member in first:
        steps = members[member].steps
        start = numbers(steps, "start_ns") + operations.origin_ns[member]
        start = clocks.of_members(start, np.full(len(start), member))
        for name, at in zip(steps.column("name").to_pylist(), start.tolist(), strict=True):
            if name in code:
                begun[code[name]] = min(begun[code[name]], at)
    return np.where(begun == np.iinfo(np.int64).max, early, begun)


def _stage(
    operations: RankOperations, clocks: Clocks, row: Int64, member: int, stage: int, begun: Int64
) -> Stage:
    row = row[np.argsort(operations.start_ns[row], kind="stable")]
    start = clocks.of_members(operations.start_ns[row], operations.member[row])
    end = clocks.of_members(operations.end_ns[row], operations.member[row])
    reached = np.r_[np.iinfo(np.int64).min // 2, np.maximum.accumulate(end)][: len(end)]
    since = np.minimum(np.maximum(start, reached), end)
    waits = np.minimum(operations.exposed_ns[row], end - since)
    step = operations.step.code[row]
    received = operations.of_kinds({RECEIVE})[row]
    first, over = _edges(step, received)
    # The first stage may still be in the step before: then this stage is done, and waits for the others.
    before = np.where(first, np.clip(begun[step] - since, 0, waits), 0)
    drain = before + np.where(over, waits, 0)
    warm_up = np.where(first & (stage > 0), waits - before, 0)
    bubble = (int(warm_up.sum()), int((waits - warm_up - drain).sum()), int(drain.sum()))
    return Stage(member, stage, 0, *bubble)


def _steps_ns(member: Digest) -> int:
    return int((numbers(member.steps, "end_ns") - numbers(member.steps, "start_ns")).sum())


def _computing_ns(member: Digest) -> int:
    """Return the computing of a rank's steps."""
    parts = time_parts(member.steps, member.about, (), on_gpu=member.about.devices > 0)
    return int(parts[:, COMPUTING].sum())


def _edges(step: Int32, received: Bool) -> tuple[Bool, Bool]:
    """Masks of the messages up to the first receive of each step, and of those after its last one."""
    count = np.cumsum(received)
    first, over = np.zeros(len(step), np.bool_), np.zeros(len(step), np.bool_)
    for _, own in places_of_each(step):
        got = count[own] - count[own[0]] + received[own[0]]
        first[own] = (got == 0) | (received[own] & (got == 1))
        over[own] = ~received[own] & (got == got[-1]) & (got[-1] > 0)
    return first, over
