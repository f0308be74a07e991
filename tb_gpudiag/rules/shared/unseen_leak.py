"""Tensors that become more, and that the trace does not show: a thread that the job has started makes
them."""

from __future__ import annotations

from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.noted_tensors import Unrecorded
from tb_gpudiag.rules.answer import CannotTell, Evidence, Finding, Fix, place_at
from tb_gpudiag.rules.shared.kept_sites import EACH_STEP, KEPT_SINCE_START
from tb_gpudiag.rules.shared.leak_state import LATER_SHARE, LEAST_BYTES_PER_STEP
from tb_gpudiag.rules.shared.usual_causes import OTHER
from tb_gpudiag.wording.quantity import size


def unseen_leaks(memories: list[DeviceMemory]) -> list[Finding]:
    """Report what was noted to grow since the job began, and in each recorded step, unseen."""
    return [
        _finding(memory, growing)
        for memory in memories
        if (growing := _growing(memory))
        and memory.steady_per_step >= LATER_SHARE * _rate(growing)
        and not any(one.holder is not None and one.holder.limit for one in growing)
    ]


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
