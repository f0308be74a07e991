"""Digests of steps for comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.report import report_pb2 as pb
from tests.digest.made import digest, parts

US = 1_000


def steps_of(
    durations_us: Sequence[int], computing: float = 1.0, cause: str = "input"
) -> list[dict[str, Any]]:
    """Make steps that compute for a share of their time and are idle by one cause for the rest."""
    rows, at = [], 0
    for number, duration_us in enumerate(durations_us):
        duration = duration_us * US
        busy = int(duration * computing)
        rows.append(
            {
                "name": f"ProfilerStep#{number}",
                "start_ns": at,
                "end_ns": at + duration,
                "steady": True,
                "computing_ns": busy,
                "idle_ns": parts(**{cause: duration - busy}),
            }
        )
        at += duration
    return rows


def trace(
    durations_us: Sequence[int], id: str, *, computing: float = 1.0, cause: str = "input", **more: Any
) -> Digest:
    """Make the digest of a trace with these steps."""
    return digest(steps=steps_of(durations_us, computing, cause), id=id, path=f"{id}/a.json", **more)


def finding(
    rule: str, cost_us: float, *, place: str = "", saves_us: tuple[float, float] = (0, 0)
) -> pb.Finding:
    """Make a finding with a cost over the step window, and a saving per step."""
    found = pb.Finding(rule=rule, name=f"name_{rule}", title=f"{rule} costs {cost_us}", cost_us=cost_us)
    found.severity = pb.Finding.WARNING
    if place:
        found.places.add(function=place)
    if saves_us[1]:
        found.saving.low_per_step_us, found.saving.high_per_step_us = saves_us
    return found


def made(comparison: pb.Comparison) -> list[pb.Verified]:
    """Return the findings of the base whose fix was made and that promised time."""
    return [row for row in comparison.verified if row.promise != pb.Verified.NONE]
