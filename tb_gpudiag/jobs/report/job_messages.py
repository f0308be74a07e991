"""Messages of a JobReport: the ranks of the job, its steps, and its collectives."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE
from tb_gpudiag.digest.digest import WORK, Digest, numbers
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.operations import IN_COLLECTIVE
from tb_gpudiag.jobs.ranks.pipeline import Pipeline
from tb_gpudiag.jobs.rules.job_words import LATE_RECORDING, collective_text, place_of
from tb_gpudiag.jobs.rules.late_recording import late_collective
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import UINT32_MAX, table_message, us
from tb_gpudiag.wording.format import count, one_line, share, size_bytes
from tb_gpudiag.wording.vocabulary import EXPOSURE_REASONS, MEMORY_KINDS, term, unit_text

FINDINGS_LIMIT = 3
"""Findings from the report on one rank, which has all of them."""

STEPS_LIMIT = 200
STEP_CELLS_LIMIT = 50_000
"""Numbers by step and rank. A job of a thousand ranks shows fewer steps."""

WORST_LIMIT = 50
WORST_CELLS_LIMIT = 20_000
"""Numbers by collective and rank of the worst collectives. A job of thousands of ranks shows fewer of
them."""

SIZES_LIMIT = 40

UNITS_LIMIT = 200
"""A model of a hundred layers has some hundred."""

STAGES_LIMIT = 512

RANKS_LIMIT = 1_000
HELD_LIMIT = 100
KINDS_SHOWN = 3


def rank_messages(facts: JobFacts) -> list[pb.JobRank]:
    waits = facts.waits
    members = len(facts.set.members)
    member = waits.member.astype(np.int64)
    waiting = waits.waiting_by(member, members)
    transfer = waits.under_way_by(member, members) - waiting
    last_in = np.bincount(waits.last_member, minlength=members)
    starts = facts.starts.start_ns - facts.starts.start_ns.min()
    return [
        _rank(
            member,
            facts.steady_parts[i],
            waiting_us=us(waiting[i]),
            transfer_us=us(transfer[i]),
            clock_offset_us=us(facts.clocks.offset_ns[i]) if facts.clocks.known[i] else 0.0,
            last_in=int(last_in[i]),
            window_us=us(facts.window_ns[i]),
            start_us=us(starts[i]),
        )
        for i, member in enumerate(facts.set.members)
    ]


def _rank(member: Digest, parts: dict[str, int], **figures: float | int) -> pb.JobRank:
    about, on_gpu = member.about, member.about.devices > 0
    computing, copying, communicating = (parts[name] for name in WORK)
    waited = parts.get(IN_COLLECTIVE, 0)
    return pb.JobRank(
        rank=about.rank,
        worker=one_line(about.worker),
        host=one_line(about.host),
        id=about.id,
        step_us=us(member.step_time.median),
        busy_us=us(about.busy_share * (about.window_end_ns - about.window_start_ns)),
        exposed_communication_us=us(communicating if on_gpu else waited),
        computing_us=us(computing),
        copying_us=us(copying),
        communicating_us=us(communicating),
        idle_by_cause=[
            pb.CauseTime(cause=cause, us=us(parts[cause])) for cause in about.causes if parts[cause]
        ],
        limiter=about.limiter,
        device_name=one_line(about.device_name),
        findings=member.findings[:FINDINGS_LIMIT],
        **figures,  # type: ignore[arg-type]
    )


def step_messages(facts: JobFacts) -> list[pb.JobStep]:
    """Return the steps that most ranks have, in time order."""
    own, waits, members = facts.own_time, facts.waits, facts.set.members
    shown = min(len(own.steps), STEPS_LIMIT, max(1, STEP_CELLS_LIMIT // max(1, len(members))))
    names = own.steps[:shown]
    lengths = np.zeros((len(members), shown), np.int64)
    begins = np.full((len(members), shown), np.iinfo(np.int64).max)
    index = {name: i for i, name in enumerate(names)}
    starts = facts.starts.start_ns - facts.starts.start_ns.min()
    for m, member in enumerate(members):
        start, end = numbers(member.steps, "start_ns"), numbers(member.steps, "end_ns")
        for row, name in enumerate(member.steps.column("name").to_pylist()):
            if name in index:
                lengths[m, index[name]] = end[row] - start[row]
                begins[m, index[name]] = starts[m] + start[row]
    text = facts.operations.step.texts
    step_of = np.array([index.get(name, NONE) for name in text] or [NONE], np.int64)
    step = step_of[facts.operations.step.code[waits.row]]
    cell = np.where(step == NONE, NONE, waits.member * np.int64(shown) + step)
    waiting = waits.waiting_by(cell, len(members) * shown).reshape(len(members), shown)
    return [
        pb.JobStep(
            name=one_line(name),
            start_us=us(begins[:, i].min()) if lengths[:, i].any() else 0.0,
            duration_us=us(own.step_ns[i]),
            last_rank=facts.set.ranks[int(own.total_ns[:, i].argmax())],
            rank_us=[us(ns) for ns in lengths[:, i]],
            rank_waiting_us=[us(ns) for ns in waiting[:, i]],
        )
        for i, name in enumerate(names)
    ]


def collectives_message(facts: JobFacts) -> pb.JobCollectives:
    """Return sums over all matched collectives, and the worst ones."""
    waits = facts.waits
    unmatched = len(facts.operations) - int((facts.matching.collective != NONE).sum())
    waiting = np.bincount(waits.collective, weights=waits.waiting_ns, minlength=len(waits))
    shown = min(WORST_LIMIT, max(1, WORST_CELLS_LIMIT // max(1, len(facts.set.members))))
    worst = np.argsort(-waiting, kind="stable")[:shown]
    return pb.JobCollectives(
        matched=len(facts.matching),
        unmatched=unmatched,
        waiting_us=us(waits.waiting_ns.sum()),
        transfer_us=us(waits.transfer_ns.sum()),
        worst=[_collective(facts, int(index)) for index in worst],
    )


def _collective(facts: JobFacts, index: int) -> pb.JobCollective:
    waits, operations, ranks = facts.waits, facts.operations, facts.set.ranks
    begin, end = int(waits.bounds[index]), int(waits.bounds[index + 1])
    row = int(waits.last_row[index])
    zero = facts.starts.start_ns.min()
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
        place = place_of(cause.place)
        message.place.CopyFrom(pb.Place(function=place.function, file=place.file, operator=place.operator))
    return message


def job_tables(facts: JobFacts) -> list[pb.Table]:
    """Return the tables that have rows."""
    tables = [_units(facts), _sizes(facts), *([_stages(facts, facts.pipeline)] if facts.pipeline else [])]
    if facts.set.kind == "snapshot":
        tables = [_rank_memory(facts), _held_by_rank(facts)]
    return [table for table in tables if table.rows]


def _units(facts: JobFacts) -> pb.Table:
    """Collectives by what they are for, those that cost most first."""
    rows = []
    for one in facts.units[:UNITS_LIMIT]:
        unit = unit_text(one.parallelism, one.unit, one.number, one.of)
        rows.append(
            (
                collective_text(one.kind),
                " · ".join(filter(None, [one.parallelism, unit])),
                one.collectives,
                one.bytes if one.bytes > 0 else None,
                one.skew_ns,
                one.transfer_ns,
                one.exposed_ns,
                (facts.set.ranks[one.last], f"last in {one.last_in:,} of {one.collectives:,}"),
                EXPOSURE_REASONS.get(one.why, EXPOSURE_REASONS["unknown"]),
            )
        )
    return table_message("units", rows, first=10)


def _sizes(facts: JobFacts) -> pb.Table:
    """Transfers by kind and size, most transfer first."""
    rows = [
        (
            collective_text(one.kind),
            one.bytes if one.bytes > 0 else None,
            one.ranks,
            one.count,
            one.transfer_ns,
            one.algorithm_gb_per_s(one.transfer_ns) or None,
            one.bus_gb_per_s(one.transfer_ns) or None,
            one.bus_gb_per_s(one.slowest_ns) or None,
        )
        for one in facts.sizes[:SIZES_LIMIT]
    ]
    return table_message("sizes", rows, first=10)


def _stages(facts: JobFacts, found: Pipeline) -> pb.Table:
    """What the stages of the pipeline compute, and their bubbles."""
    steps = max(1, found.steps)
    mean_ns = sum(stage.computing_ns for stage in found.stages) / max(1, len(found.stages))
    rows = [
        (
            one.stage,
            facts.set.ranks[one.member],
            one.computing_ns / steps,
            one.computing_ns / mean_ns if mean_ns else None,
            *(ns / steps for ns in (one.warm_up_ns, one.between_ns, one.drain_ns)),
        )
        for one in found.stages[:STAGES_LIMIT]
    ]
    return table_message("stages", rows, first=32, title=_schedule(found))


def _rank_memory(facts: JobFacts) -> pb.Table:
    """Memory of each rank, those whose allocations failed first, then the fullest."""
    memory, kinds = facts.memory, facts.memory.kinds
    order = np.lexsort((-memory.allocated, -memory.failed_bytes))[:RANKS_LIMIT]
    return table_message(
        "rank_memory",
        [
            (
                f"rank {facts.set.ranks[m]}",
                memory.devices[m],
                int(memory.failed_bytes[m]) if memory.has_failed[m] else None,
                memory.failed_at[m],
                int(memory.allocated[m]),
                int(memory.reserved[m]),
                int(memory.capacity[m]) or None,
                _largest_kinds({kind: int(held[m]) for kind, held in kinds.items()}),
            )
            for m in order.tolist()
        ],
        first=32,
    )


def _largest_kinds(held: dict[str, int]) -> str:
    """The kinds that are most of it, with their sizes."""
    largest = sorted(held.items(), key=lambda one: -one[1])[:KINDS_SHOWN]
    return ", ".join(f"{size_bytes(size)} {term(MEMORY_KINDS, kind).noun}" for kind, size in largest if size)


def _held_by_rank(facts: JobFacts) -> pb.Table:
    """What held memory at the peaks, what differs most from rank to rank first."""
    memory = facts.memory
    every = np.arange(len(memory.allocated))
    known = np.setdiff1d(every, memory.without_history)
    shown = known if len(known) else every
    held, ranks = memory.held[:, shown], [facts.set.ranks[m] for m in shown.tolist()]
    order = np.argsort(-np.ptp(held, axis=1), kind="stable")[:HELD_LIMIT].tolist()
    return table_message(
        "held_by_rank",
        [
            (
                term(MEMORY_KINDS, kind).word,
                allocator,
                str(place),
                int(np.median(held[at])),
                (int(held[at].max()), f"rank {ranks[int(held[at].argmax())]}"),
                f"rank {ranks[int(held[at].argmax())]}",
                (int(held[at].min()), f"rank {ranks[int(held[at].argmin())]}"),
            )
            for at in order
            for kind, allocator, place in [memory.places[at]]
            if held[at].any()
        ],
        first=10,
    )


def _schedule(found: Pipeline) -> str:
    """`Pipeline: GPipe, 4 stages, 8 micro-batches: stages wait 30% of the time, 27% at best`."""
    name = found.schedule or "schedule not known"
    batches = f", {count(found.batches, 'micro-batch', 'micro-batches')}" if found.batches else ""
    # Waiting for other replicas at the end of a step hides a part of the bubble.
    at_best = 0 < (found.ideal_share or 0) <= found.bubble_share
    ideal = f", {share(found.ideal_share or 0)} at best" if at_best else ""
    stages = count(found.depth, "stage")
    return f"Pipeline: {name}, {stages}{batches}: stages wait {share(found.bubble_share)} of the time{ideal}"


def pipeline_message(facts: JobFacts) -> pb.Pipeline | None:
    """Return the pipeline's schedule and bubbles; None without a pipeline."""
    found = facts.pipeline
    if found is None:
        return None
    return pb.Pipeline(
        schedule=found.schedule,
        named=found.named,
        stages=found.depth,
        micro_batches=min(found.batches, UINT32_MAX),
        stages_per_rank=found.chunks,
        bubble_share=found.bubble_share,
        ideal_share=found.ideal_share or 0.0,
    )
