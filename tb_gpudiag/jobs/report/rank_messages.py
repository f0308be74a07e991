"""The ranks of a job, and its steps."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.digest.digest import Digest, numbers, per_cause
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import us
from tb_gpudiag.wording.format import one_line

FINDINGS_LIMIT = 3
"""Findings of a rank's own report: the page of the rank has all of them."""

STEPS_LIMIT = 200
CELLS_LIMIT = 50_000
"""Numbers per list of steps by rank. A thousand ranks have fewer steps."""


def rank_messages(facts: JobFacts) -> list[pb.JobRank]:
    """One message per rank, by rank."""
    waits = facts.waits
    waiting, transfer = facts.by_member(waits.waiting_ns), facts.by_member(waits.transferring_ns)
    last_in = np.bincount(waits.last_member, minlength=len(facts.set.members))
    starts = recording_starts(facts)
    return [
        _rank(
            member,
            waiting_us=us(waiting[i]),
            transfer_us=us(transfer[i]),
            clock_offset_us=us(facts.clocks.offset_ns[i]) if facts.clocks.known[i] else 0.0,
            last_in=int(last_in[i]),
            window_us=us(facts.window_ns[i]),
            start_us=us(starts[i]),
        )
        for i, member in enumerate(facts.set.members)
    ]


def recording_starts(facts: JobFacts) -> Int64:
    """When each recording started, ns since the first one did; shape (members,)."""
    origin = np.array([member.about.origin_ns for member in facts.set.members], np.int64)
    start = facts.clocks.of_members(origin - facts.operations.base_ns, np.arange(len(origin)))
    since: Int64 = start - start.min()
    return since


def _rank(member: Digest, **figures: float | int) -> pb.JobRank:
    about, steps = member.about, member.steps
    steady = np.asarray(steps.column("steady").to_pylist(), np.bool_)
    length = (numbers(steps, "end_ns") - numbers(steps, "start_ns"))[steady]
    computing, copying, communicating = (
        int(numbers(steps, f"{name}_ns")[steady].sum()) for name in ("computing", "copying", "communicating")
    )
    on_gpu = about.devices > 0
    by_cause = per_cause(steps, "idle_ns" if on_gpu else "host_ns", len(about.causes))[steady].sum(axis=0)
    exposed = communicating if on_gpu else int(numbers(member.collectives, "exposed_ns").sum())
    return pb.JobRank(
        rank=about.rank,
        worker=one_line(about.worker),
        host=one_line(about.host),
        id=about.id,
        step_us=us(np.median(length)) if len(length) else 0.0,
        busy_us=us(about.busy_share * (about.window_end_ns - about.window_start_ns)),
        exposed_communication_us=us(exposed),
        computing_us=us(computing),
        copying_us=us(copying),
        communicating_us=us(communicating),
        idle_by_cause=[
            pb.CauseTime(cause=cause, us=us(ns))
            for cause, ns in zip(about.causes, by_cause.tolist(), strict=True)
            if ns
        ],
        limiter=about.limiter,
        device_name=one_line(about.device_name),
        findings=member.findings[:FINDINGS_LIMIT],
        **figures,  # type: ignore[arg-type]
    )


def step_messages(facts: JobFacts) -> list[pb.JobStep]:
    """Steps that most ranks have, in order of time."""
    own, waits, members = facts.own_time, facts.waits, facts.set.members
    shown = min(len(own.steps), STEPS_LIMIT, max(1, CELLS_LIMIT // max(1, len(members))))
    names = own.steps[:shown]
    lengths = np.zeros((len(members), shown), np.int64)
    begins = np.full((len(members), shown), np.iinfo(np.int64).max)
    index = {name: i for i, name in enumerate(names)}
    starts = recording_starts(facts)
    for m, member in enumerate(members):
        start, end = numbers(member.steps, "start_ns"), numbers(member.steps, "end_ns")
        for row, name in enumerate(member.steps.column("name").to_pylist()):
            if name in index:
                lengths[m, index[name]] = end[row] - start[row]
                begins[m, index[name]] = starts[m] + start[row]
    waiting = np.zeros((len(members), shown))
    if len(waits):
        text = facts.operations.step.texts
        step_of = np.array([index.get(name, -1) for name in text] or [-1], np.int64)
        step = step_of[facts.operations.step.code[waits.row]]
        kept = step >= 0
        np.add.at(waiting, (waits.member[kept], step[kept]), waits.waiting_ns[kept])
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
