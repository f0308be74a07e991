"""The collectives of a job: those in which ranks wait most, and how fast they transfer."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.jobs.ranks.bandwidth import SizeClass
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.rules.job_words import LATE_RECORDING
from tb_gpudiag.jobs.rules.late_recording import late_collective
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import UINT32_MAX, us
from tb_gpudiag.wording.format import one_line

WORST_LIMIT = 50
CELLS_LIMIT = 20_000
"""Numbers by rank in all of the worst collectives. Thousands of ranks have fewer collectives."""

SIZES_LIMIT = 40


def collectives_message(facts: JobFacts) -> pb.JobCollectives:
    """Sums over all matched collectives, the worst ones, and transfers by size."""
    waits = facts.waits
    unmatched = len(facts.operations) - int((facts.matching.collective >= 0).sum())
    waiting = np.bincount(waits.collective, weights=waits.waiting_ns, minlength=len(waits))
    shown = min(WORST_LIMIT, max(1, CELLS_LIMIT // max(1, len(facts.set.members))))
    worst = np.argsort(-waiting, kind="stable")[:shown]
    return pb.JobCollectives(
        matched=len(facts.matching),
        unmatched=unmatched,
        waiting_us=us(waits.waiting_ns.sum()),
        transfer_us=us(waits.transfer_ns.sum()),
        worst=[_collective(facts, int(index)) for index in worst],
        sizes=[_size(one) for one in facts.sizes[:SIZES_LIMIT]],
    )


def _collective(facts: JobFacts, index: int) -> pb.JobCollective:
    waits, operations, ranks = facts.waits, facts.operations, facts.set.ranks
    begin, end = int(waits.bounds[index]), int(waits.bounds[index + 1])
    row = int(waits.last_row[index])
    zero = _zero(facts)
    message = pb.JobCollective(
        index=index,
        group=one_line(operations.group[row]),
        kind=operations.kind[row],
        name=one_line(operations.name[row]),
        annotation=one_line(operations.annotation[row]),
        bytes=max(0, int(operations.bytes[row])),
        skew_us=us(waits.skew_ns[index]),
        transfer_us=us(waits.transfer_ns[index]),
        last_rank=ranks[int(waits.last_member[index])],
        first_rank=ranks[int(waits.first_member[index])],
        waiting_us={
            str(ranks[member]): us(ns)
            for member, ns in zip(waits.member[begin:end].tolist(), waits.waiting_ns[begin:end], strict=True)
        },
        start_us=us(waits.first_ns[index] - zero),
        end_us=us(waits.over_ns[index] - zero),
    )
    if index == late_collective(facts):
        message.why, message.why_us = LATE_RECORDING, us(facts.starts.later_ns[index])
        return message
    cause = facts.late_causes.cause(facts.late_causes.chain(index)[-1])
    message.why, message.why_us = cause.part, us(cause.time_ns)
    if cause.place:
        function, _, file = cause.place.rpartition(" (")
        if function and file.endswith(")"):
            message.place.function, message.place.file = one_line(function), one_line(file[:-1])
        else:
            message.place.operator = one_line(cause.place)
    return message


def _zero(facts: JobFacts) -> int:
    """The start of the first recording, on the time axis of the waits."""
    origin = np.array([member.about.origin_ns for member in facts.set.members], np.int64)
    return int(facts.clocks.of_members(origin - facts.operations.base_ns, np.arange(len(origin))).min())


def _size(one: SizeClass) -> pb.CollectiveSize:
    return pb.CollectiveSize(
        kind=one.kind,
        bytes=max(0, one.bytes),
        ranks=one.ranks,
        count=min(one.count, UINT32_MAX),
        transfer_us=us(one.transfer_ns),
        algorithm_gb_per_s=one.algorithm_gb_per_s(one.transfer_ns),
        bus_gb_per_s=one.bus_gb_per_s(one.transfer_ns),
        slowest_gb_per_s=one.bus_gb_per_s(one.slowest_ns),
    )
