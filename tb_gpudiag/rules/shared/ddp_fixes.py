"""Fixes of copies that DistributedDataParallel makes, for the findings that own their time."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tb_gpudiag.facts.core.intervals import intersect
from tb_gpudiag.facts.launching.ddp_copies import DdpCopies
from tb_gpudiag.rules.rule import Finding, Fix
from tb_gpudiag.rules.shared.evidence import part_time
from tb_gpudiag.rules.shared.lost_time import Lost

# A part of a finding with less than this share of its cost does not change what to do first.
LEAST_PART = 0.1

# From this share on, nothing else in the finding is worth a fix of its own.
NEARLY_ALL = 0.8

_URL = "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"


class _Part(NamedTuple):
    label: str
    argument: str
    comment: str


_BUFFERS = _Part(
    "DDP broadcasting and copying buffers",
    "broadcast_buffers=False",
    "buffers, such as BatchNorm's statistics, stay those of each rank",
)
_GRADIENTS = _Part(
    "DDP copying buckets into gradients",
    "gradient_as_bucket_view=True",
    "gradients are views of the buckets",
)


def with_ddp_copies(found: Finding, copies: DdpCopies, lost: Lost) -> Finding:
    """Add evidence and the fix, if DDP's copies are a part of the finding's claims."""
    claimed = found.claims.get(lost.device)
    if claimed is None or not found.cost_ns:
        return found
    times = ((_BUFFERS, copies.buffers), (_GRADIENTS, copies.gradients))
    inside = [(part, intersect(claimed, spans).total) for part, spans in times]
    parts = [(part, ns) for part, ns in inside if ns >= LEAST_PART * found.cost_ns]
    if not parts:
        return found
    total_ns = sum(ns for _, ns in parts)
    fix = _fix([part for part, _ in parts])
    if total_ns < NEARLY_ALL * found.cost_ns:
        fix = Fix(f"{fix.text} {found.fix.text}", f"{fix.code}\n\n{found.fix.code}", found.fix.url)
    return replace(
        found,
        fix=fix,
        evidence=[*found.evidence, *(part_time(part.label, ns, found.cost_ns) for part, ns in parts)],
    )


def _fix(parts: list[_Part]) -> Fix:
    arguments = " and ".join(part.argument for part in parts)
    lines = "\n".join(f"    {part.argument},   # {part.comment}" for part in parts)
    code = f"model = DistributedDataParallel(\n    model,\n{lines}\n)"
    return Fix(f"Pass {arguments} to DistributedDataParallel.", code, _URL)
