"""GD607: transfers that could overlap with computing, and do not."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.facts.core.intervals import coverage, union
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.bandwidth import find_slow_links
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.parallelism import OTHER_RANK, tensor_channels
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, RuleAnswer, Saving
from tb_gpudiag.rules.rule import page_fixes
from tb_gpudiag.rules.shared.exposure_advice import ExposedUnit, fix_of, most_exposed
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.collective_kinds import DDP, FULLY_SHARDED
from tb_gpudiag.wording.format import share
from tb_gpudiag.wording.vocabulary import EXPOSURE_REASONS

FIXES = page_fixes(__name__)

# Below this, a fix is hardly noticed.
LEAST_SHARE = levels.MEASURABLE

# The last bucket of gradients and the first layer's weights cannot overlap with anything. In healthy jobs, up
# to 35% of the transfers are exposed; without overlap, all of them are.
EXPOSED_SHARE = levels.HALF

# The backward pass is two thirds of the computing. Reductions can hide under it, but for the first layers'.
HIDING_SHARE = levels.HALF

# Kinds that parallelisms send while there is something else to compute. A tensor-parallel layer or an expert
# needs its result at once, and a pipeline's stage its input.
_HIDEABLE = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")


@dataclass(frozen=True)
class Overlap:
    """Mean over ranks, ns over the step window. transfer: of collectives that could overlap. exposed: part
    of it while nothing computes on the rank that arrived last. possible: how much could be hidden, and is
    not. Ranks that wait have often computed all they can, so what is exposed there says nothing."""

    transfer_ns: int
    exposed_ns: int
    possible_ns: int


def overlap_of(facts: JobFacts) -> Overlap:
    """Add up the transfers that could overlap with computing."""
    waits, operations = facts.waits, facts.operations
    hideable = operations.of_kinds(_HIDEABLE)[waits.last_row]
    tensor = list(tensor_channels(operations, facts.channels, waits))
    slow = [found.link.channel for found in find_slow_links(facts.sizes)]  # overlap is not what these lack
    hideable &= ~np.isin(facts.channels.of[waits.last_row], [*tensor, *slow])
    members = len(facts.set.members)
    last = waits.bounds[1:] - 1
    weight = np.where(hideable, waits.size, 0) / members
    transfer = int((waits.transferring_ns[last] * weight).sum())
    alone = np.maximum(0, waits.exposed_transfer_ns[last] - _besides(facts, hideable))
    exposed = int((alone * weight).sum())
    computing = int(facts.own_time.parts_ns[:, :, 0].sum()) // members
    hidden = transfer - exposed
    possible = min(transfer, int(HIDING_SHARE * computing)) - hidden
    return Overlap(transfer, exposed, max(0, min(possible, exposed)))


def _besides(facts: JobFacts, hideable: Bool) -> Int64:
    """How long each transfer ran beside operations of its rank that cannot be hidden, shape (collectives,).

    Nothing computes then because of those."""
    waits = facts.waits
    last = waits.bounds[1:] - 1
    found = np.zeros(len(waits), np.int64)
    others = ~hideable[waits.collective]
    for member in np.unique(waits.member[last[hideable]]).tolist():
        own = others & (waits.member == member)
        chosen = np.flatnonzero(hideable & (waits.last_member == member))
        busy = union(waits.arrival_ns[own], waits.end_ns[own])
        found[chosen] = coverage(busy, waits.last_ns[chosen], waits.end_ns[last[chosen]])
    return found


def check(facts: JobFacts) -> RuleAnswer:
    """Find transfers that run while nothing computes, in a job that has computing to hide them under."""
    if not facts.on_gpu:
        return CannotTell("no GPU activity was recorded", "Record with ProfilerActivity.CUDA.")
    if facts.server:
        return Clear(f"collectives of {facts.server} join parts of layers, whose result is needed at once")
    overlap, window_ns = overlap_of(facts), facts.job_ns
    mostly = overlap.exposed_ns >= EXPOSED_SHARE * overlap.transfer_ns
    if not mostly or overlap.possible_ns < LEAST_SHARE * window_ns:
        return Clear(
            f"transfers that could overlap take {share(overlap.transfer_ns, window_ns)} of the step window, "
            f"and {share(overlap.exposed_ns, overlap.transfer_ns)} of them are exposed"
        )
    units, waiting_ns = _units(facts), int(facts.waits.exposed_waiting_ns.sum())
    return Finding(
        title="Transfers that could overlap with computing take "
        f"{share(overlap.possible_ns, window_ns)} of the time",
        summary="All ranks have arrived, data moves, and nothing computes meanwhile, although there is "
        f"computing to hide the transfers under. Parallelism: {' + '.join(facts.parallelism) or 'unknown'}."
        f"{most_exposed(units)}",
        fix=fix_of(units)
        or next((fix for name, fix in _FIXES.items() if name in facts.parallelism), FIXES["any"]),
        cost_ns=overlap.possible_ns,
        saving=Saving(0, overlap.possible_ns, "at most"),
        evidence=[
            Evidence.of_window("Could be hidden", overlap.possible_ns, window_ns),
            Evidence.of_window("Exposed transfer", overlap.exposed_ns, window_ns),
            Evidence.of_window("Transfer", overlap.transfer_ns, window_ns),
            Evidence.of_window(
                "Waiting for other ranks, not counted", waiting_ns // len(facts.set.members), window_ns
            ),
        ],
    )


def _units(facts: JobFacts) -> list[ExposedUnit]:
    """The units whose transfers are exposed, without those that wait for a rank."""
    return [
        ExposedUnit(
            one.kind, one.parallelism, one.unit, one.number, one.of, one.why, one.collectives, one.exposed_ns
        )
        for one in facts.units
        if one.kind in _HIDEABLE and one.why != OTHER_RANK and one.why in EXPOSURE_REASONS
    ]


_FIXES = {FULLY_SHARDED: FIXES["fsdp"], DDP: FIXES["ddp"]}
