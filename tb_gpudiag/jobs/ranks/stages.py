"""Stages of a pipeline: which rank is which, and how long each waits for its neighbours' microbatches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.jobs.ranks.channels import Channels
from tb_gpudiag.jobs.ranks.operations import RankOperations
from tb_gpudiag.jobs.ranks.waits import Waits


@dataclass(frozen=True)
class Bubbles:
    """What sending and receiving costs each member of a pipeline, over the steps.

    waiting_ns: waiting for a neighbour while nothing computes, shape (members,). The bubble: a stage waits
    while the pipeline fills and drains, and for stages that are slower than itself. microbatches: messages
    that a stage gets from the one before it in a step, median.
    """

    waiting_ns: Int64
    microbatches: int


def stages_of(channels: Channels, members: int) -> Int64:
    """Return the stage of each member in a pipeline, shape (members,): one more than the last stage that
    sends to it from a lower rank. All 0 without a pipeline."""
    stage = np.zeros(members, np.int64)
    if not channels.is_pipeline:
        return stage
    forward = sorted(
        channel.members
        for channel in channels.channels
        if channel.pair is not None and channel.pair[0] < channel.pair[1] and len(channel.members) == 2
    )
    for sender, receiver in forward:  # in order of the sender: all before it are known
        stage[receiver] = max(stage[receiver], stage[sender] + 1)
    return stage


def bubbles_of(operations: RankOperations, channels: Channels, waits: Waits, members: int) -> Bubbles:
    """Add up how long the members wait in their sends and receives."""
    between_stages = channels.is_pair[channels.of[waits.row]]
    member = waits.member.astype(np.int64)
    whole = waits.waiting_by(np.where(between_stages, member, NONE), members)
    exposed = np.bincount(member, np.where(between_stages, waits.exposed_waiting_ns, 0), members)
    return Bubbles(np.minimum(whole, exposed.astype(np.int64)), _microbatches(operations, channels, waits))


def _microbatches(operations: RankOperations, channels: Channels, waits: Waits) -> int:
    """Count the messages of each pair of stages in a step, from the lower rank to the higher one."""
    forward = np.array([c.pair is not None and c.pair[0] < c.pair[1] for c in channels.channels], np.bool_)
    row = waits.last_row
    row = row[forward[channels.of[row]]]
    pairs, steps = channels.of[row].astype(np.int64), operations.step.code[row].astype(np.int64)
    counts = np.unique(np.stack((pairs, steps)), axis=1, return_counts=True)[1]
    return int(np.median(counts)) if len(counts) else 0
