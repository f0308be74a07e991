"""Digests of the ranks of a small job, made by hand: each step computes, and then reduces gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.members import find_sets
from tb_gpudiag.jobs.rules.job_registry import JOB_RULES
from tb_gpudiag.rules.answer import RuleAnswer
from tests.digest.made import digest, parts

MS = 1_000_000
US = 1_000

Change = Callable[[int, int, dict[str, Any]], None]
"""Called with the rank, the number of a collective, and its row, which it may change."""


_ALL_REDUCE = {
    "kind": "all_reduce",
    "name": "ncclDevKernel_AllReduce",
    "source": -1,
    "destination": -1,
    "bytes": 1 << 20,
    "kernels": 10,
    "work": 7,
    "work_sizes": 7,
}


def _times(since: float, free: float, arrival: float, over: float, cause: str) -> dict[str, Any]:
    """Make the times of a collective, in ms, whose rank was free from `free` on."""
    busy = arrival - free
    idle = 0.0 if cause == "computing" else busy - min(busy, 10.0)
    return {
        "start_ns": arrival,
        "end_ns": over,
        "exposed_ns": round((over - arrival) * MS),
        "since_ns": since,
        "host_start_ns": since,
        "computing_ns": round((busy - idle) * MS),
        "communicating_ns": round((free - since) * MS),
        "idle_ns": parts(**{cause: round(idle * MS)}) if idle else parts(),
    }


def check_of(name: str) -> Callable[[JobFacts], RuleAnswer]:
    """What asks the rule of this name."""
    return next(rule for rule in JOB_RULES if rule.name == name).check


def job(
    ranks: int = 4,
    steps: int = 4,
    *,
    own_ms: Callable[[int, int], float] = lambda rank, step: 10.0,
    cause: str = "computing",
    change: Change | None = None,
    offset_ms: Callable[[int], float] = lambda rank: 0.0,
    drift: Callable[[int], float] = lambda rank: 0.0,
    host: Callable[[int], str] = lambda rank: "node0",
    start_ms: Callable[[int], float] = lambda rank: 0.0,
    collectives: int = 2,
    later_ms: Callable[[int, int], float] = lambda rank, step: 1.0,
    transfer_ms: float = 1.0,
    sequence: bool = True,
    group: str = "0",
    about: Callable[[int], Mapping[str, Any]] = lambda rank: {},
) -> list[Digest]:
    """Make a job in which each step of each rank takes `own_ms` before the first of its collectives, and
    `later_ms` before each other one; more than 10 ms is of `cause`. The rank that is last starts the
    transfer. start_ms: true time of the start."""
    clock = {rank: start_ms(rank) for rank in range(ranks)}
    since = dict(clock)
    rows: dict[int, list[dict[str, Any]]] = {rank: [] for rank in clock}
    ends: list[dict[int, float]] = []
    for counted, (step, number) in enumerate(product(range(steps), range(collectives))):
        arrival = {r: at + (later_ms if number else own_ms)(r, step) for r, at in clock.items()}
        over = max(arrival.values()) + transfer_ms
        of_all = {"group": group, "sequence": counted if sequence else -1, "step": step, **_ALL_REDUCE}
        for r, at in arrival.items():
            rows[r].append({**of_all, **_times(since[r], clock[r], at, over, cause)})
        since, clock = arrival, dict.fromkeys(clock, over)
        ends.append(clock)
    ends = ends[collectives - 1 :: collectives]
    return [
        _rank(
            r,
            ranks,
            rows[r],
            ends=[end[r] for end in ends],
            start=start_ms(r),
            offset=offset_ms(r),
            drift=drift(r),
            host=host(r),
            group=group,
            change=change,
            about=about(r),
        )
        for r in range(ranks)
    ]


def _rank(
    rank: int,
    ranks: int,
    rows: Sequence[dict[str, Any]],
    *,
    ends: Sequence[float],
    start: float,
    offset: float,
    drift: float,
    host: str,
    group: str,
    change: Change | None,
    about: Mapping[str, Any],
) -> Digest:
    def local(ms: float) -> int:
        """Time in the recording: its clock runs faster by the drift."""
        return round((ms - start) * (1 + drift) * MS)

    for number, row in enumerate(rows):
        for name in ("start_ns", "end_ns", "since_ns", "host_start_ns"):
            row[name] = local(row[name])
        if change is not None:
            change(rank, number, row)
    steps = [
        {
            "name": f"ProfilerStep#{i}",
            "start_ns": local(ends[i - 1]) if i else 0,
            "end_ns": local(end),
            "steady": True,
            **_parts_of_step(rows, i, local(end) - (local(ends[i - 1]) if i else 0)),
        }
        for i, end in enumerate(ends)
    ]
    length = local(ends[-1]) if ends else MS
    values: dict[str, Any] = {
        "id": f"{rank:032x}",
        "worker": f"worker{rank}",
        "path": f"run/worker{rank}.pt.trace.json",
        "rank": rank,
        "world_size": ranks,
        "host": host,
        "groups": {group: list(range(ranks))} if group else {},
        "origin_ns": 1_700_000_000_000_000_000 + round((start + offset) * MS),
        "recording_ns": length,
        "window_end_ns": length,
    }
    return digest(steps=steps, collectives=[row for row in rows if row], **(values | dict(about)))


def _parts_of_step(rows: Sequence[dict[str, Any]], step: int, length_ns: int) -> dict[str, Any]:
    own = [row for row in rows if row.get("step") == step]
    computing = sum(row["computing_ns"] for row in own)
    idle = [sum(by_cause) for by_cause in zip(*(row["idle_ns"] for row in own), strict=True)]
    return {
        "computing_ns": computing,
        "idle_ns": idle,
        "communicating_ns": max(0, length_ns - computing - sum(idle)),
    }


def facts_of(digests: Sequence[Digest]) -> JobFacts:
    """Facts of the only set of these digests."""
    (found,) = find_sets(digests).sets
    return JobFacts(found)
