"""What becomes more, and the trace does not show it: tensors that a thread makes which the job has started,
and nodes of graphs."""

from __future__ import annotations

from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.noted_tensors import Unrecorded
from tb_gpudiag.rules.answer import CannotTell, Evidence, Finding, Fix, place_at
from tb_gpudiag.rules.shared.kept_sites import EACH_STEP, KEPT_SINCE_START
from tb_gpudiag.rules.shared.leak_state import LATER_SHARE, LEAST_BYTES_PER_STEP
from tb_gpudiag.rules.shared.outer_step import FEWEST_OUTLIVED, updated_steps
from tb_gpudiag.rules.shared.usual_causes import GRAPH, OTHER
from tb_gpudiag.wording.quantity import number, size


def unseen_leaks(memories: list[DeviceMemory]) -> list[Finding]:
    """Report what was noted to grow since the job began, and in each recorded step, unseen."""
    found = [
        _finding(memory, growing)
        for memory in memories
        if (growing := _growing(memory))
        and memory.steady_per_step >= LATER_SHARE * _rate(growing)
        and not any(one.holder is not None and one.holder.limit for one in growing)
    ]
    return found or [_nodes_finding(memory) for memory in memories if _keeps_nodes(memory)]


def _keeps_nodes(memory: DeviceMemory) -> bool:
    """Whether graphs grow whose backward pass has freed all tensors in them, and that outlive the optimizer's
    steps."""
    holder = memory.graph_holder
    if not memory.nodes_per_step or (holder is not None and holder.limit):
        return False
    return memory.others_per_step >= LEAST_BYTES_PER_STEP and updated_steps(memory) >= FEWEST_OUTLIVED


def _nodes_finding(memory: DeviceMemory) -> Finding:
    rate, nodes = memory.others_per_step, round(memory.nodes_per_step)
    frames = [frame for level in memory.graph_holder.frames for frame in level] if memory.graph_holder else []
    return Finding(
        title=f"Host memory grows by {size(rate, 'per step')}: {GRAPH.name}",
        summary=(
            "Autograd's graphs have had more nodes in each step since the job began. Something, such as a "
            "list or a sum, holds losses with their graphs, which take memory though a backward pass frees "
            "the activations in them."
        ),
        fix=Fix(GRAPH.fix, GRAPH.code, GRAPH.url),
        cost_bytes=round(rate * len(memory.floors.periods)),
        cost_bytes_per_step=rate,
        memory_device=memory.device,
        evidence=[
            Evidence("Growth per step", size(rate), ("before the recording: all that malloc gave out",)),
            Evidence("More nodes per step", number(nodes, "node")),
        ],
        places=[place_at(frame) for frame in frames[:1]],
    )


def unseen_growth(memories: list[DeviceMemory]) -> CannotTell | None:
    """Say that something grows of which the trace has nothing; None if nothing does."""
    found = next(((memory, growing) for memory in memories if (growing := _growing(memory))), None)
    if found is None:
        return next(filter(None, map(_malloc_alone, memories)), None)
    memory, growing = found
    grows = f"Python holds {size(_rate(growing), 'per step')} more of {memory.name} memory"
    return CannotTell(
        f"{grows}, and the recording does not show who allocates it: a thread that the job has started",
        "For one recording, do in the main thread what the other thread does, so that the profiler sees it.",
        hint=f"{grows}, which a thread allocates that the profiler does not see.",
    )


def _malloc_alone(memory: DeviceMemory) -> CannotTell | None:
    """Say that malloc gave out more and more, of which neither the trace nor the notes have anything."""
    more = memory.others_per_step
    if more < LEAST_BYTES_PER_STEP:
        return None
    grows = f"the process got {size(more, 'per step')} more memory until the recording began"
    return CannotTell(
        f"{grows}, but for no tensors that Python holds or the recording shows: NumPy's arrays, or C++",
        "Begin the recording twice as late: a cache is full then. memray shows what else allocates.",
        hint=f"{grows[0].upper()}{grows[1:]}, and not for tensors: memray shows what for.",
    )


def _growing(memory: DeviceMemory) -> list[Unrecorded]:
    """What grows by LEAST_BYTES_PER_STEP together, largest first: of each, every step since the job began has
    left some."""
    found = [
        one for one in memory.unrecorded if one.per_step >= EACH_STEP and one.since_start >= KEPT_SINCE_START
    ]
    found.sort(key=lambda one: -one.bytes * one.per_step)
    return found if _rate(found) >= LEAST_BYTES_PER_STEP else []


def _rate(growing: list[Unrecorded]) -> float:
    """Bytes per step."""
    return sum(one.bytes * one.per_step for one in growing)


def _finding(memory: DeviceMemory, growing: list[Unrecorded]) -> Finding:
    rate, steps = _rate(growing), memory.steps_so_far
    frames = [frame for one in growing if one.holder for level in one.holder.frames for frame in level]
    return Finding(
        title=f"Host memory grows by {size(rate, 'per step')}",
        summary=(
            "A thread that the job has started allocates tensors that stay. The profiler does not see it: "
            "notes say that Python has held more of them in each step since the job began."
        ),
        fix=Fix(OTHER.fix, OTHER.code, OTHER.url),
        cost_bytes=round(rate * len(memory.floors.periods)),
        cost_bytes_per_step=rate,
        memory_device=memory.device,
        evidence=[Evidence("Growth per step", size(rate), (f"noted over {steps} steps",))],
        places=[place_at(frame) for frame in frames[:1]],
    )
