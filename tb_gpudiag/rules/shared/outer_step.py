"""Steps that are parts of a longer one: what a graph keeps until the optimizer's step is no leak.

The inner steps of a meta-learner, micro-batches whose losses are summed, and the actions of a rollout keep
their graphs until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.memory.sites import GrowingSite
from tb_gpudiag.rules.shared.leak_causes import CAUSE_SHARE, causes_of
from tb_gpudiag.rules.shared.usual_causes import GRAPH
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.quantity import number

if TYPE_CHECKING:
    from tb_gpudiag.facts.memory.device_memory import DeviceMemory

# An optimizer that runs in less than half of the steps ends longer ones.
RARE_SHARE = levels.HALF

# A leak outlives the optimizer's step, again and again: as many repetitions as a trend takes.
FEWEST_OUTLIVED = 3

_RECORD = "Record three of the optimizer's steps, or mark each with prof.step(): a leak outlives them."
_RECORD_HISTORY = "Record the history of three of the optimizer's steps: a leak outlives them."
_NONE = " If the job has no optimizer, it is a leak."


def may_end_with_update(memory: DeviceMemory) -> bool:
    """Whether most of what grows is graphs that the optimizer's next step may free: neither the recorded
    steps nor what was noted before shows that they outlive it."""
    growing = [site for site in memory.sites if not site.in_optimizer]
    parts = causes_of(growing, memory)
    graph = [site for part in parts if part.cause is GRAPH for site in part.sites]
    if sum(site.per_unit for site in graph) <= CAUSE_SHARE * sum(site.per_unit for site in growing):
        return False
    updated = _updated(memory, memory.updates_ns)
    if not len(updated):
        # Without an optimizer's step, it may be an evaluation, which trains nothing. Gradients with a graph
        # of their own are for a loss of which the recording does not show the backward pass. A job without
        # an optimizer has no such step.
        backward = any(site.phase is Phase.BACKWARD for site in graph)
        return memory.shows_updates and backward and memory.has_optimizers is not False
    if len(updated) >= RARE_SHARE * len(memory.floors.periods):
        return False
    return outlived(memory, graph) < FEWEST_OUTLIVED and not _noted_to_outlive(memory, graph, updated)


def _noted_to_outlive(memory: DeviceMemory, graph: list[GrowingSite], updated: Int64) -> bool:
    """Whether memory was noted to grow evenly, mostly as the graphs do, over so many of the optimizer's
    steps: the recorded ones and, if they came as often, those before. A single one does not show how often
    it runs."""
    if len(updated) < 2 or memory.steady_per_step <= CAUSE_SHARE * sum(site.per_unit for site in graph):
        return False
    longest = np.diff(np.r_[-1, updated, len(memory.floors.periods)]).max()
    return bool(memory.noted_steps >= FEWEST_OUTLIVED * longest)


def outlived(memory: DeviceMemory, graph: list[GrowingSite]) -> int:
    """Return after how many steps with an update the oldest of these allocations was still alive."""
    oldest = min(int(site.times_ns[0]) for site in graph)
    return len(_updated(memory, memory.updates_ns[memory.updates_ns > oldest]))


def updated_steps(memory: DeviceMemory) -> int:
    """Return in how many steps the optimizer ran."""
    return len(_updated(memory, memory.updates_ns))


def _updated(memory: DeviceMemory, updates_ns: Int64) -> Int64:
    """Return the numbers of the steps with such updates."""
    step = np.searchsorted(memory.floors.periods.start_ns, updates_ns, side="right") - 1
    return np.unique(step[step >= 0])


def how_to_see_updates(memories: Sequence[DeviceMemory]) -> str:
    """Say what to record, and what else decides."""
    how = _RECORD_HISTORY if all(memory.is_of_snapshot for memory in memories) else _RECORD
    return how if any(map(updated_steps, memories)) else how + _NONE


def outer_step_reason(memory: DeviceMemory) -> str:
    """Say that the graphs may go with the optimizer's step."""
    updates = updated_steps(memory)
    ran = f"in {number(updates, 'step')} only" if updates else "in none of them"
    return (
        f"and the optimizer ran {ran}: inner steps of a meta-learner, micro-batches whose losses are summed "
        "and the actions of a rollout keep their graphs until it runs"
    )
