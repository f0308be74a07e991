"""Digests of the ranks of a small job, made by hand: each step computes, and then reduces gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.members import find_sets
from tests.digest.made import digest, parts

MS = 1_000_000
US = 1_000

Change = Callable[[int, int, dict[str, Any]], None]
"""Called with the rank, the number of a collective, and its row, which it may change."""


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
    transfer_ms: float = 1.0,
    sequence: bool = True,
    group: str = "0",
    about: Callable[[int], Mapping[str, Any]] = lambda rank: {},
) -> list[Digest]:
    """Make a job in which each step of each rank takes `own_ms` before the first of its collectives; more
    than 10 ms is of `cause`. The rank that is last starts the transfer. start_ms: true time of the start."""
    clock = {rank: start_ms(rank) for rank in range(ranks)}
    since = dict(clock)
    rows: dict[int, list[dict[str, Any]]] = {rank: [] for rank in range(ranks)}
    ends: dict[int, list[float]] = {rank: [] for rank in range(ranks)}
    for step in range(steps):
        for number in range(collectives):
            arrival = {r: clock[r] + (own_ms(r, step) if number == 0 else 1.0) for r in range(ranks)}
            over = max(arrival.values()) + transfer_ms
            for r in range(ranks):
                busy = arrival[r] - clock[r]
                usual = min(busy, 10.0)
                row = {
                    "kind": "all_reduce",
                    "name": "ncclDevKernel_AllReduce",
                    "group": group,
                    "sequence": step * collectives + number if sequence else -1,
                    "source": -1,
                    "destination": -1,
                    "bytes": 1 << 20,
                    "start_ns": arrival[r],
                    "end_ns": over,
                    "exposed_ns": round((over - arrival[r]) * MS),
                    "step": step,
                    "since_ns": since[r],
                    "host_start_ns": since[r],
                    "computing_ns": round((busy if cause == "computing" else usual) * MS),
                    "communicating_ns": round((clock[r] - since[r]) * MS),
                    "idle_ns": parts(**{cause: round((busy - usual) * MS)})
                    if cause != "computing"
                    else parts(),
                    "kernels": 10,
                    "work": 7,
                    "work_sizes": 7,
                }
                since[r] = arrival[r]
                rows[r].append(row)
            clock = dict.fromkeys(range(ranks), over)
        for r in range(ranks):
            ends[r].append(clock[r])
    return [
        _rank(
            r, ranks, rows[r], ends[r], start_ms(r), offset_ms(r), drift(r), host(r), group, change, about(r)
        )
        for r in range(ranks)
    ]


def _rank(
    rank: int,
    ranks: int,
    rows: Sequence[dict[str, Any]],
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


def facts_of(digests: Sequence[Digest]) -> JobFacts:
    """Facts of the only set of these digests."""
    (found,) = find_sets(digests).sets
    return JobFacts(found)
